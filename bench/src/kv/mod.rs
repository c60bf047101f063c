//! The works of key-value stores: durable puts and batches, loading, reading, closing and opening.

mod batched;
mod cold;
mod entries;
mod gets;
mod keys;
mod load;
mod puts;
mod reads;
mod reopen;
mod scan;
mod store;
mod stores;

use anyhow::{Result, bail};

use crate::appends;
use crate::job::{Job, Shape};
use crate::job_result::JobResult;

/// Does the job: one result for each work that it does.
pub fn run(job: &Job) -> Result<Vec<JobResult>> {
    let kind = stores::find(&job.system)?;
    match job.shape {
        Shape::Callers | Shape::Batches => {
            let result = appends::run(job, &puts::peer(&kind))?;
            Ok(vec![JobResult { durable: kind.durable, ..result }])
        }
        Shape::Load => load::run(job, &kind),
        Shape::Reads => reads::run(job, &kind),
        _ => bail!("nothing of this is for key-value stores"),
    }
}
