//! The limits of an open log, and dropping its oldest records on request.

use crate::base::error::{Error, Result};
use crate::base::log_error::LogError;
use crate::base::operation_errors::RetentionError;
use crate::base::options::Retention;
use crate::base::position::Seq;
use crate::commit::retention;
use crate::log::Log;
use crate::runtime::detached::detached;

/// The limits of what an open log keeps, and truncation. From [`Log::retention`].
#[derive(Debug, Clone, Copy)]
pub struct LogRetention<'a> {
    log: &'a Log,
}

impl Log {
    /// Returns what the log keeps: its limits, and dropping the oldest records on request.
    pub fn retention(&self) -> LogRetention<'_> {
        LogRetention { log: self }
    }
}

impl LogRetention<'_> {
    /// Returns how much the log keeps: as it was opened, or as it was set since.
    pub fn limits(self) -> Retention {
        self.log.write.retention()
    }

    /// Changes how much the log keeps, until it is closed. A thread of the engine drops records
    /// beyond the new limits soon after the call. Dropped records do not come back. Does not wait.
    ///
    /// # Errors
    /// [`RetentionError::InvalidOption`], after which the limits are what they
    /// were; [`LogError::Closed`].
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Log, Retention};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let mut limits = log.retention().limits();
    /// limits.bytes = Some(1 << 30);
    /// log.retention().set_limits(limits)?;
    /// assert_eq!(log.retention().limits(), limits);
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn set_limits(self, limits: Retention) -> Result<(), RetentionError> {
        self.log.refuse_if_closed()?;
        limits.validate(self.log.options().segment_size).map_err(RetentionError::narrow)?;
        self.log.write.set_retention(limits);
        Ok(())
    }

    /// Drops every record below `seq`, durably. Whole segments are freed. The records dropped from
    /// the remaining segment can no longer be read; their space is freed with that segment. A `seq`
    /// at or below the oldest record changes nothing. Blocks until the disk has synced.
    ///
    /// # Errors
    /// [`RetentionError::NotFound`] when a record below `seq` is not durable or does not exist yet,
    /// [`LogError::Io`], after which the log is poisoned, [`LogError::Poisoned`] when it was
    /// poisoned before, [`LogError::Closed`].
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Append, Error, Log, ReadError, Seq};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// log.write(Append::records(&["a", "b", "c"]))?.blocking_wait()?;
    /// log.retention().truncate_before(Seq(3))?; // records 1 and 2 are dropped
    /// let Err(ReadError::Trimmed(trimmed)) = log.read(Seq(2)) else { panic!() };
    /// assert_eq!(trimmed.oldest, Seq(3));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn truncate_before(self, seq: impl Into<Seq>) -> Result<(), RetentionError> {
        self.log.refuse_if_closed()?;
        let outcome = retention::truncate_before(&self.log.write, seq.into());
        if let Err(error @ Error::Io(_)) = &outcome {
            self.log.write.fail(error.clone());
        }
        outcome.map_err(RetentionError::narrow)
    }

    /// As [`LogRetention::truncate_before`], without blocking: a thread of its own does the work.
    ///
    /// # Cancel safety
    /// A call that is dropped drops the records all the same, unless the log is closed before that
    /// thread has begun.
    ///
    /// # Errors
    /// As [`LogRetention::truncate_before`], and [`LogError::NoThread`].
    pub async fn truncate_before_async(self, seq: impl Into<Seq>) -> Result<(), RetentionError> {
        let (log, seq) = (self.log.clone(), seq.into());
        detached(move || log.retention().truncate_before(seq)).await.map_err(LogError::no_thread)?
    }
}
