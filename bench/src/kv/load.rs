//! Loading: every key once, and one sync at the end.

use std::time::Instant;

use anyhow::{Context, Result};
use esker_bench::measure::latency::Latencies;

use super::entries::Entries;
use super::scan;
use super::store::{Kind, Store};
use crate::callers::{Member, Records};
use crate::job::Job;
use crate::job_result::{JobResult, TimedPart};

/// Loads as many keys as the job says.
pub fn timed(job: &Job, store: &dyn Store) -> Result<TimedPart> {
    let (mut member, mut times) = (Member::new(job, 0), Latencies::new());
    let mut entries = Entries::new(Records::new(&mut member, job.count, &mut times), job.random);
    let begin = Instant::now();
    store.load(&mut entries).context("load")?;
    let took = begin.elapsed();
    Ok(TimedPart { ops: job.count, took, times })
}

/// Loads, closes, opens again, and compares.
pub fn run(job: &Job, kind: &Kind) -> Result<Vec<JobResult>> {
    let store = (kind.open)(job).context("open")?;
    let loaded = timed(job, &*store)?;
    store.close().context("close")?;
    let store = (kind.open)(job).context("open again")?;
    scan::compare_all(job, &*store)?;
    store.close().context("close again")?;
    Ok(vec![kind.result(job, "load-sequential", kind.loads, &loaded)])
}
