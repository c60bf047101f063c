//! A process that fills a log and ends without closing it, as one that is killed.

use std::process::{Command, Stdio, exit};

use anyhow::{Context, Result, ensure};

use super::slot_store::{BATCHES_AHEAD, Store};
use crate::job::{Job, Shape};

/// Fills a log, and makes it durable.
pub fn filled(job: &Job) -> Result<Store> {
    std::fs::create_dir_all(&job.dir)?;
    let store = Store::open_synced(job)?;
    store.put_batches(job, 0, u64::from(job.batch), BATCHES_AHEAD, || {})?;
    Ok(store)
}

/// Ends this process without closing the log, after everything is durable.
pub fn leave(job: &Job) -> Result<()> {
    let store = filled(job)?;
    // Neither the log nor what it has in memory is put in order.
    std::mem::forget(store);
    exit(0)
}

/// Has another process do that.
pub fn in_another(job: &Job) -> Result<()> {
    let own = std::env::current_exe().context("where this program is")?;
    let job = Job { shape: Shape::Leave, ..job.clone() };
    let status = Command::new(own).arg("child").args(job.flags()).stdin(Stdio::null()).status()?;
    ensure!(status.success(), "the process that should leave a log: {status}");
    Ok(())
}
