//! Phase 1: every other slot is committed, and the others are found.

use std::time::Instant;

use anyhow::Result;

use super::Measured;
use super::store::Store;
use super::values::FULL_IN_TIME;
use crate::histogram::Histogram;
use crate::job::Job;
use crate::payload::Payload;

/// Scans as often as the job says.
pub fn run(job: &Job) -> Result<Measured> {
    let (store, slots) = (Store::open(job)?, u64::from(job.batch));
    let mut payload = Payload::new(job, 0);
    for slot in 0..slots {
        store.accept(slot, payload.record(slot))?;
    }
    for slot in (0..slots).step_by(2) {
        store.commit(slot)?;
    }
    let wanted = slots / 2;
    store.compare_accepted(job, 1, wanted)?;
    let mut times = Histogram::new();
    let begin = Instant::now();
    let mut last = begin;
    for _ in 0..job.count {
        store.compare_accepted(job, FULL_IN_TIME, wanted)?;
        let now = Instant::now();
        times.add(now - last);
        last = now;
    }
    store.compare_accepted(job, 1, wanted)?;
    store.close()?;
    Ok(Measured { ops: job.count * wanted, took: last - begin, times })
}
