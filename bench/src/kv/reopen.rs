//! Closing a store, and opening it again.

use std::time::Instant;

use anyhow::{Context, Result};

use super::keys::{ExpectedValues, key_of};
use super::store::{Kind, Store};
use crate::job::Job;
use crate::job_result::TimedPart;

/// The store that was opened, and the times of closing and of opening until the first get.
pub fn timed(
    job: &Job,
    kind: &Kind,
    store: Box<dyn Store>,
) -> Result<(Box<dyn Store>, TimedPart, TimedPart)> {
    let begin = Instant::now();
    store.close().context("close")?;
    let closed = begin.elapsed();
    let begin = Instant::now();
    let store = (kind.open)(job).context("open again")?;
    let mut expected = ExpectedValues::new(job);
    let middle = job.count / 2;
    let key = key_of(job.random, 0, middle);
    store.reader()?.get(&key, &mut |value| expected.see(middle, value)).context("first get")?;
    let opened = begin.elapsed();
    Ok((store, TimedPart::once(closed), TimedPart::once(opened)))
}
