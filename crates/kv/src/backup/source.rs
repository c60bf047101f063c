//! The source of a backup: an open store, or the log of one that another process has open.

use esker_log::{LogStream, ReadOnlyLog, Seq, Start};
use parking_lot::ReentrantMutexGuard;

use crate::base::operation_errors::BackupError;
use crate::base::store_error::StoreError;
use crate::state::gap::range_before;
use crate::state::store_writer::StoreWriter;

/// The records that are left, for a backup.
pub(super) struct RecordsLeft {
    /// The stream of them, from the oldest one on.
    pub(super) stream: LogStream,
    /// A number that no record is below.
    pub(super) oldest: Seq,
    /// The position that the copy must reach: everything is durable there that replaces what is
    /// missing before the oldest record.
    pub(super) end: Seq,
}

impl RecordsLeft {
    /// Whether the log had records, and cleaning dropped all of them: nothing in the store lives.
    pub(super) fn is_none(&self) -> bool {
        self.oldest > self.end
    }
}

/// The records that a backup copies.
pub(super) trait Source {
    /// Finds the records that are left.
    fn begin(&mut self) -> Result<RecordsLeft, BackupError>;
    /// Cleaning dropped records that were not copied yet: keeps it from doing so again.
    fn hold_cleaning(&mut self) -> Result<(), BackupError>;
    fn refuse_if_closed(&self) -> Result<(), BackupError>;
}

/// A store that is open in this process.
pub(super) struct OpenStore<'a> {
    writer: &'a StoreWriter,
    /// The lock that keeps cleaning from beginning a pass.
    pass: Option<ReentrantMutexGuard<'a, ()>>,
}

impl<'a> OpenStore<'a> {
    pub(super) fn new(writer: &'a StoreWriter) -> Self {
        Self { writer, pass: None }
    }
}

impl Source for OpenStore<'_> {
    fn begin(&mut self) -> Result<RecordsLeft, BackupError> {
        // The trim point first: what was durable before it was raised is durable now.
        let oldest = self.writer.log.oldest();
        let stream = self.writer.log.stream(Start::Oldest)?;
        Ok(RecordsLeft { stream, oldest, end: self.writer.log.durable() })
    }

    fn hold_cleaning(&mut self) -> Result<(), BackupError> {
        if self.pass.is_none() {
            self.pass = Some(self.writer.cleaning().lock_pass()?);
        }
        Ok(())
    }

    fn refuse_if_closed(&self) -> Result<(), BackupError> {
        Ok(self.writer.state().refuse_if_closing()?)
    }
}

/// The log of a store, which another process may have open.
pub(super) struct LogReader<'a>(pub(super) &'a ReadOnlyLog);

impl Source for LogReader<'_> {
    fn begin(&mut self) -> Result<RecordsLeft, BackupError> {
        self.0.refresh()?;
        let oldest = self.0.oldest();
        let stream = self.0.stream(Start::Oldest)?;
        // Again: one poll may see the trim point of a moment, and the durable position before it.
        self.0.refresh()?;
        // The durable position is only as far as the records could be read. More was durable.
        if let Some(corruption) = self.0.storage().corruption() {
            return Err(esker_log::Error::Corrupted(corruption).into());
        }
        if let Some(before) = range_before(self.0.oldest())
            && self.0.storage().was_repaired()?
        {
            return Err(StoreError::Quarantined(before).into());
        }
        Ok(RecordsLeft { stream, oldest, end: self.0.durable() })
    }

    fn hold_cleaning(&mut self) -> Result<(), BackupError> {
        Ok(())
    }

    /// The stream itself ends when the reader is closed.
    fn refuse_if_closed(&self) -> Result<(), BackupError> {
        Ok(())
    }
}
