//! Reading all keys, every value compared: a scan in order, or in any order.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use esker_bench::records::payload::header_of;

use super::keys::{ExpectedValues, key_of};
use super::store::Store;
use crate::job::Job;
use crate::job_result::TimedPart;

/// All keys that were loaded must be there, once, in order, with their values.
pub fn compare(job: &Job, store: &dyn Store) -> Result<()> {
    let mut expected = ExpectedValues::new(job);
    let (mut seen, mut before) = (0, [0; 16]);
    store.reader()?.scan(&mut |key, value| {
        let (_, count) = header_of(value).context("a value without a head")?;
        ensure!(key == key_of(job.random, 0, count), "a value was read back of another key");
        ensure!(seen == 0 || before[..] < *key, "a scan is not in the order of the keys");
        before.copy_from_slice(key);
        seen += 1;
        expected.see(count, value)
    })?;
    ensure!(seen == job.count, "{seen} of {} keys were read back", job.count);
    Ok(())
}

/// The same in any order.
pub fn compare_all(job: &Job, store: &dyn Store) -> Result<()> {
    let mut expected = ExpectedValues::new(job);
    let mut seen = vec![false; job.count as usize];
    store.reader()?.all(&mut |key, value| {
        let (_, count) = header_of(value).context("a value without a head")?;
        ensure!(key == key_of(job.random, 0, count), "a value was read back of another key");
        let seen =
            seen.get_mut(count as usize).context("a key was read back that no caller put")?;
        ensure!(!*seen, "key {count} was read back twice");
        *seen = true;
        expected.see(count, value)
    })?;
    let missing = seen.iter().filter(|seen| !**seen).count();
    ensure!(missing == 0, "{missing} of {} keys were not read back", job.count);
    Ok(())
}

/// A scan in order, timed.
pub fn timed(job: &Job, store: &dyn Store) -> Result<TimedPart> {
    let begin = Instant::now();
    compare(job, store)?;
    Ok(TimedPart { ops: job.count, ..TimedPart::once(begin.elapsed()) })
}
