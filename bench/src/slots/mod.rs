//! The works on slots, on Esker's consensus log: what the Go side does on a store of keys.

mod leave;
mod recovery;
mod scan;
mod store;
mod timed;
mod values;

use std::time::Duration;

use anyhow::{Result, bail};

pub use self::leave::leave;
use crate::harness::JobResult;
use crate::histogram::Histogram;
use crate::job::{Job, Shape};
use crate::peers;

const NOTE: &str = "`Mode::Volatile` and `sync_on_commit` off, otherwise default options; an accept and a \
                    commit for each write, `accept_batch` and `commit_batch` for a batch; callers are \
                    threads";

/// What was measured.
struct Measured {
    ops: u64,
    took: Duration,
    times: Histogram,
}

/// Does the job.
pub fn run(job: &Job) -> Result<JobResult> {
    if job.system != "esker" {
        bail!("{} has no slots", job.system);
    }
    let measured = match job.shape {
        Shape::Slots => timed::run(job),
        Shape::Scan => scan::run(job),
        Shape::Recovery | Shape::Kill => recovery::run(job),
        _ => bail!("nothing of this is on slots"),
    }?;
    Ok(JobResult {
        work: None,
        ops: measured.ops,
        bytes: measured.ops * u64::from(job.most),
        seconds: measured.took.as_secs_f64(),
        p50_us: measured.times.quantile_us(0.5),
        p99_us: measured.times.quantile_us(0.99),
        p999_us: None,
        verified: true,
        durable: matches!(job.shape, Shape::Recovery | Shape::Kill),
        version: peers::version("esker"),
        note: NOTE.into(),
        reader_mb_per_s: None,
    })
}
