//! Dropping the oldest records on request.

use crate::base::error::{Error, Result};
use crate::base::position::Seq;
use crate::commit::retention;
use crate::log::Log;
use crate::runtime::detached::detached;

impl Log {
    /// Drops every record below `seq`, durably. Whole segments are freed. The records dropped from
    /// the remaining segment can no longer be read; their space is freed with that segment. A `seq`
    /// at or below the oldest record changes nothing. Blocks until the disk has synced.
    ///
    /// # Errors
    /// [`Error::NotFound`] when a record below `seq` is not durable or does not exist yet,
    /// [`Error::Io`], after which the log is poisoned, [`Error::Poisoned`] when it was poisoned
    /// before, [`Error::Closed`].
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Append, Error, Log, Seq};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// log.write(Append::records(&["a", "b", "c"]))?.blocking_wait()?;
    /// log.truncate_before(Seq(3))?; // records 1 and 2 are dropped
    /// assert!(matches!(log.read(Seq(2)), Err(Error::Trimmed { oldest: Seq(3) })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn truncate_before(&self, seq: impl Into<Seq>) -> Result<()> {
        self.refuse_if_closed()?;
        let outcome = retention::truncate_before(&self.write, seq.into());
        if let Err(error @ Error::Io(_)) = &outcome {
            self.write.fail(error.clone());
        }
        outcome
    }

    /// As [`Log::truncate_before`], without blocking: a thread of its own does the work.
    ///
    /// # Cancel safety
    /// A call that is dropped drops the records all the same, unless the log is closed before that
    /// thread has begun.
    ///
    /// # Errors
    /// As [`Log::truncate_before`], and [`Error::NoThread`].
    pub async fn truncate_before_async(&self, seq: impl Into<Seq>) -> Result<()> {
        let (log, seq) = (self.clone(), seq.into());
        detached(move || log.truncate_before(seq)).await.map_err(Error::no_thread)?
    }
}
