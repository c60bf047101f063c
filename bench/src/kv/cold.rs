//! Gets of a store whose files are not in the page cache, right after it was opened.

use std::fs::{File, read_dir};
use std::path::Path;

use anyhow::{Context, Result};
use esker_bench::load::slice::Until;
use rustix::fs::{Advice, fadvise, syncfs};

use super::gets::gets;
use super::store::{Kind, Store};
use crate::job::Job;
use crate::job_result::TimedPart;
use crate::work::COLD_CALLERS;

/// Each gets one of so many keys, so that next to no block is read twice.
const ONE_OF: u64 = 2000;

/// Closes the store, drops its files from the page cache, opens it, reads and closes it.
pub fn timed(job: &Job, kind: &Kind, store: Box<dyn Store>) -> Result<TimedPart> {
    store.close().context("close before the cold gets")?;
    syncfs(File::open(&job.dir)?).context("sync the file system")?;
    drop_cached_pages(&job.dir).context("drop cached pages")?;
    let store = (kind.open)(job).context("open for the cold gets")?;
    let each = (job.count / ONE_OF).max(1);
    let measured =
        gets(job, &*store, COLD_CALLERS, Until::Records(each), 1).context("cold gets")?;
    store.close().context("close after the cold gets")?;
    Ok(measured)
}

fn drop_cached_pages(dir: &Path) -> Result<()> {
    for entry in read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            drop_cached_pages(&entry.path())?;
        } else {
            fadvise(File::open(entry.path())?, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
