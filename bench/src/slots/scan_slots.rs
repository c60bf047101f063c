//! Phase 1: every other slot is committed, and the others are found.

use std::time::Instant;

use anyhow::Result;
use esker_bench::measure::call_clock::CallClock;
use esker_bench::measure::latency::Latencies;

use super::slot_store::Store;
use super::values::FULL_IN_TIME;
use crate::job::Job;
use crate::job_result::TimedPart;

/// Scans as often as the job says.
pub fn run(job: &Job) -> Result<TimedPart> {
    let (store, slots) = (Store::open(job)?, u64::from(job.batch));
    let mut payload = job.payload(0);
    for slot in 0..slots {
        store.accept(slot, payload.record(slot))?;
    }
    for slot in (0..slots).step_by(2) {
        store.commit(slot)?;
    }
    let wanted = slots / 2;
    store.compare_accepted(job, 1, wanted)?;
    let mut times = Latencies::new();
    let begin = Instant::now();
    let mut clock = CallClock::start(1);
    for _ in 0..job.count {
        store.compare_accepted(job, FULL_IN_TIME, wanted)?;
        clock.end_call(|time| times.add(time));
    }
    let took = begin.elapsed();
    store.compare_accepted(job, 1, wanted)?;
    store.close()?;
    Ok(TimedPart { ops: job.count * wanted, took, times })
}
