//! Closing: everything accepted becomes durable, and the lock is given up.

use std::time::Instant;

use crate::base::error::{Error, Result};
use crate::log::{Log, Owner};

impl Log {
    /// Makes everything accepted durable, marks the end as clean, and gives up the lock. Appends
    /// that come later get [`Error::Closed`], and so does a second close.
    ///
    /// # Errors
    /// The failure that kept a record from becoming durable. The log is closed all the same, but
    /// not cleanly: the next opening recovers.
    pub fn close(&self) -> Result<()> {
        self.owner.close(None)
    }

    /// As [`Log::close`], but gives up after the deadline: the log accepts nothing more, what was
    /// staged may still become durable, and the lock is kept until the last handle, ticket and stream
    /// of the log is gone, because a commit may still be in flight.
    ///
    /// # Errors
    /// As [`Log::close`], and [`Error::Timeout`].
    pub fn close_timeout(&self, timeout: std::time::Duration) -> Result<()> {
        self.owner.close(Instant::now().checked_add(timeout))
    }
}

impl Owner {
    fn close(&self, deadline: Option<Instant>) -> Result<()> {
        let outcome = self.write.close(deadline);
        self.read.cache.abandon();
        outcome
    }

    pub(super) fn close_or_warn(&self) {
        match self.close(None) {
            Ok(()) | Err(Error::Closed) => {}
            Err(error) => tracing::warn!(%error, "the log was not closed cleanly"),
        }
    }
}
