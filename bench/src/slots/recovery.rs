//! Opening until every slot was read. The log was closed before, or its process ended without
//! closing it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use esker_bench::measure::latency::Latencies;

use super::leave;
use super::slot_store::Store;
use super::values::FULL_IN_TIME;
use crate::job::{Job, Shape};
use crate::job_result::TimedPart;

/// As often as the job says.
pub fn run(job: &Job) -> Result<TimedPart> {
    let entries = u64::from(job.batch);
    let (mut times, mut took) = (Latencies::new(), Duration::ZERO);
    for round in 0..job.count {
        let one = Job { dir: job.dir.join(round.to_string()), ..job.clone() };
        match job.shape {
            Shape::Kill => leave::in_another(&one),
            _ => leave::filled(&one).and_then(Store::close),
        }
        .context("build")?;
        let begin = Instant::now();
        let store = Store::open(&one).context("open")?;
        store.compare_committed(job, FULL_IN_TIME, entries)?;
        let time = begin.elapsed();
        store.compare_committed(job, 1, entries)?;
        store.close()?;
        std::fs::remove_dir_all(&one.dir)?;
        times.add(time);
        took += time;
    }
    Ok(TimedPart { ops: entries * job.count, took, times })
}
