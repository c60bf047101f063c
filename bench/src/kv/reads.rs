//! Reads of all kinds of a store that was loaded in a random order.

use anyhow::{Context, Result};
use esker_bench::load::slice::Until;
use esker_bench::measure::call_clock::TIMED_EVERY;

use super::gets::{gets, multi_gets};
use super::store::Kind;
use super::{cold, load, reopen, scan};
use crate::job::Job;
use crate::job_result::{JobResult, TimedPart};

/// The part of `--seconds` that each kind of get is timed for.
const PART: f64 = 0.5;

/// Loads, reads, closes, opens, and reads again.
pub fn run(job: &Job, kind: &Kind) -> Result<Vec<JobResult>> {
    let mut results = Vec::new();
    let mut add = |work, note, measured: TimedPart| {
        results.push(kind.result(job, work, note, &measured));
    };
    let (warm_up, time) = (Until::Elapsed(job.warm_up()), job.time().mul_f64(PART));
    let store = (kind.open)(job).context("open")?;
    add("load-random", kind.loads, load::timed(job, &*store)?);
    store.await_compactions().context("compactions")?;
    // Whatever caches there are, are warm after the first one.
    scan::compare(job, &*store).context("compare")?;
    add("scan-all", kind.reads, scan::timed(job, &*store).context("scan")?);
    for (work, callers) in [("get-1", 1), ("get-2", 2)] {
        gets(job, &*store, callers, warm_up, TIMED_EVERY).context("warm up")?;
        let until = Until::Elapsed(time);
        add(work, kind.reads, gets(job, &*store, callers, until, TIMED_EVERY).context(work)?);
    }
    if let Some(measured) = multi_gets(job, &*store, time).context("multi-get")? {
        add("multi-get", kind.reads, measured);
    }
    let (store, closed, opened) = reopen::timed(job, kind, store)?;
    add("close", kind.reads, closed);
    add("open", kind.reads, opened);
    scan::compare_all(job, &*store).context("compare after opening")?;
    add("get-cold", kind.reads, cold::timed(job, kind, store)?);
    Ok(results)
}
