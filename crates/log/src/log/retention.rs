//! Changing the retention of an open log.

use crate::base::error::Result;
use crate::base::options::Retention;
use crate::log::Log;

impl Log {
    /// Returns how much the log keeps: as it was opened, or as it was set since.
    pub fn retention(&self) -> Retention {
        self.write.retention()
    }

    /// Changes how much the log keeps, until it is closed. A thread of the engine drops what is too
    /// much by then, soon after the call. What was dropped does not come back. Does not wait.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption), after which the retention is what it
    /// was; [`Error::Closed`](crate::Error::Closed).
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Log, Retention};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let mut retention = log.retention();
    /// retention.bytes = Some(1 << 30);
    /// log.set_retention(retention)?;
    /// assert_eq!(log.retention(), retention);
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn set_retention(&self, retention: Retention) -> Result<()> {
        self.refuse_if_closed()?;
        retention.validate(self.options().segment_size)?;
        self.write.set_retention(retention);
        Ok(())
    }
}
