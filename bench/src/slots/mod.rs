//! The works on slots, on Esker's consensus log: what the Go side does on a store of keys.

mod leave;
mod recovery;
mod scan_slots;
mod slot_store;
mod timed;
mod values;

use anyhow::{Result, bail};

pub use self::leave::leave;
use crate::job::{Job, Shape};
use crate::job_result::JobResult;
use crate::lock_file;

const NOTE: &str = "`Mode::Volatile` and `sync_on_commit` off, otherwise default options; an accept and a \
                    commit for each write, `accept_batch` and `commit_batch` for a batch; callers are \
                    threads";

/// Does the job.
pub fn run(job: &Job) -> Result<JobResult> {
    if job.system != "esker" {
        bail!("{} has no slots", job.system);
    }
    let measured = match job.shape {
        Shape::Slots => timed::run(job),
        Shape::Scan => scan_slots::run(job),
        Shape::Recovery | Shape::Kill => recovery::run(job),
        _ => bail!("nothing of this is on slots"),
    }?;
    Ok(JobResult {
        durable: matches!(job.shape, Shape::Recovery | Shape::Kill),
        version: lock_file::version("esker"),
        note: NOTE.into(),
        ..measured.result(measured.ops * u64::from(job.most))
    })
}
