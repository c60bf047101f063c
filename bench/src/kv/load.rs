//! Loading: every key once, and one sync at the end.

use std::time::Instant;

use anyhow::{Context, Result};

use super::keys::{Key, key_of};
use super::store::Store;
use super::stores::Kind;
use super::{Measured, result, scan};
use crate::harness::JobResult;
use crate::histogram::Histogram;
use crate::job::Job;
use crate::payload::Payload;

/// Two looks at the clock cost as much as a put that does not wait.
const TIMED_EVERY: u64 = 16;

/// What is loaded.
pub struct Entries<'a> {
    payload: Payload,
    random: bool,
    next: u64,
    end: u64,
    asked: Option<Instant>,
    times: &'a mut Histogram,
}

impl Entries<'_> {
    /// The next one. The time until the one after it is asked for is that of its put.
    pub fn next(&mut self) -> Option<(Key, &[u8])> {
        if let Some(asked) = self.asked.take() {
            self.times.add(asked.elapsed());
        }
        if self.next == self.end {
            return None;
        }
        let count = self.next;
        self.next += 1;
        let key = key_of(self.random, 0, count);
        let value = self.payload.record(count);
        if count.is_multiple_of(TIMED_EVERY) {
            self.asked = Some(Instant::now());
        }
        Some((key, value))
    }

    /// Whether there is another one.
    #[cfg_attr(not(feature = "surrealkv"), allow(dead_code, reason = "only surrealkv asks"))]
    pub fn has_more(&self) -> bool {
        self.next < self.end
    }
}

/// Loads as many keys as the job says.
pub fn timed(job: &Job, store: &dyn Store) -> Result<Measured> {
    let mut times = Histogram::new();
    let mut entries = Entries {
        payload: Payload::new(job, 0),
        random: job.random,
        next: 0,
        end: job.count,
        asked: None,
        times: &mut times,
    };
    let begin = Instant::now();
    store.load(&mut entries).context("load")?;
    let took = begin.elapsed();
    Ok(Measured { ops: job.count, took, times })
}

/// Loads, closes, opens again, and compares.
pub fn run(job: &Job, kind: &Kind) -> Result<Vec<JobResult>> {
    let store = (kind.open)(job).context("open")?;
    let loaded = timed(job, &*store)?;
    store.close().context("close")?;
    let store = (kind.open)(job).context("open again")?;
    scan::compare_all(job, &*store)?;
    store.close().context("close again")?;
    Ok(vec![result(job, kind, "load-sequential", kind.loads, &loaded)])
}
