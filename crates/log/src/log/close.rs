//! Closing: makes everything accepted durable and releases the lock.

use std::time::Instant;

use crate::base::error::with_causes;
use crate::base::log_error::{LogError, refuse_if_forked};
use crate::base::operation_errors::WaitError;
use crate::log::{Log, Owner};
use crate::runtime::detached::detached;

impl Log {
    /// Makes everything accepted durable, writes the clean-close marker, and releases the lock.
    /// Later appends get [`LogError::Closed`], and so does a second close. Blocks until commits
    /// have ended.
    ///
    /// # Errors
    /// The failure that kept a record from becoming durable. The log is closed all the same, but
    /// not cleanly: the next open runs recovery. [`LogError::Forked`] in a child that `fork` made:
    /// the log stays open in its parent.
    pub fn close(&self) -> Result<(), LogError> {
        self.owner.close(None).map_err(WaitError::without_deadline)
    }

    /// As [`Log::close`], without blocking: a thread of its own closes the log.
    ///
    /// # Cancel safety
    /// A call that is dropped closes the log all the same.
    ///
    /// # Errors
    /// As [`Log::close`], and [`LogError::NoThread`], after which the log is open.
    pub async fn close_async(&self) -> Result<(), LogError> {
        let log = self.clone();
        detached(move || log.close()).await.map_err(LogError::no_thread)?
    }

    /// As [`Log::close`], but gives up at the deadline. The log then accepts no more records, and
    /// staged records may still become durable. A commit may still be in flight, so the lock is
    /// held until that commit has ended and the last handle and ticket of the log are dropped.
    ///
    /// # Errors
    /// As [`Log::close`], and [`WaitError::Timeout`].
    pub fn close_timeout(&self, timeout: std::time::Duration) -> Result<(), WaitError> {
        self.owner.close(Instant::now().checked_add(timeout))
    }
}

impl Owner {
    fn close(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        refuse_if_forked()?;
        let outcome = self.write.close(deadline);
        self.read.cache.abandon();
        outcome
    }

    pub(super) fn close_or_warn(&self) {
        match self.close(None) {
            Ok(()) | Err(WaitError::Log(LogError::Closed | LogError::Forked)) => {}
            Err(error) => {
                tracing::warn!(error = with_causes(&error), "failed to close the log cleanly");
            }
        }
    }
}
