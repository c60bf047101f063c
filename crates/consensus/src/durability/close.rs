//! Closing a log.

use std::sync::Arc;

use crate::index::page::State;
use crate::index::slot_locks::{AllLocks, PromiseState};
use crate::record;
use crate::state::inner::{CloseWithLastHandle, ConsensusLog, Inner};
use crate::storage_error::StorageError;

impl ConsensusLog {
    /// Closes the log: makes all entries durable, including accepted ones in
    /// [`Mode::Volatile`](crate::Mode::Volatile), writes a checkpoint, and releases the lock.
    /// Blocks meanwhile. Later calls return [`StorageError::Closed`], and so does a second close.
    ///
    /// # Errors
    /// The error that kept data from becoming durable. The log is closed in any case; the next
    /// opening recovers.
    pub fn close(&self) -> Result<(), StorageError> {
        self.inner.close()
    }
}

impl Inner {
    pub(crate) fn close(&self) -> Result<(), StorageError> {
        self.refuse_if_closed()?;
        self.background.stop();
        let _running = self.checkpoints.lock();
        let mut locks = self.all_locks()?;
        if locks.promise_state().closed {
            return Err(StorageError::Closed);
        }
        let last = self.writable(&locks.promise_state()).and_then(|()| {
            self.write_what_only_memory_has(&mut locks)?;
            self.count_durable(&crossbeam_epoch::pin());
            Ok(self.begin_checkpoint(&locks, 0))
        });
        // No operation decides from here on. Reads continue until everything is durable.
        locks.close();
        drop(locks);
        let written = last.and_then(|checkpoint| match self.last_checkpoint(checkpoint) {
            // A checkpoint is optional: without it opening replays more.
            Err(StorageError::Log(error @ esker_log::Error::NoSpace { .. })) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to write a checkpoint before closing"
                );
                Ok(())
            }
            written => written,
        });
        self.status.close();
        self.budget.close();
        self.frontier.waiters().wake();
        let closed = self.log.close().map_err(StorageError::from_log);
        match written {
            Err(StorageError::ReadOnly { .. }) | Ok(()) => closed,
            Err(error) => Err(error),
        }
    }

    /// Appends what only memory has, before a close that does not happen if there is no room for
    /// it, or before a backup.
    pub(crate) fn save_uncommitted(&self) -> Result<(), StorageError> {
        // A log that is read-only has nothing that its records lack.
        if !self.is_volatile() || self.status.read_only().is_some() {
            return Ok(());
        }
        let mut locks = self.all_locks()?;
        self.writable(&locks.promise_state())?;
        self.write_what_only_memory_has(&mut locks)
    }

    /// Appends the promise and the values that only memory has, so that an orderly close loses
    /// none. The checkpoint also has the promise, but there may be no room for it.
    fn write_what_only_memory_has(&self, locks: &mut AllLocks<'_>) -> Result<(), StorageError> {
        let PromiseState { promise, is_promised, is_recorded, .. } = locks.promise_state();
        if is_promised && !is_recorded {
            drop(self.append_internal(|out| record::promise(out, promise))?);
            locks.promise(promise, true);
        }
        let guard = crossbeam_epoch::pin();
        let mut only_here = Vec::new();
        self.each_uncommitted(0, &guard, |slot, resident| only_here.push((slot, resident)));
        let mut tickets = Vec::new();
        for (slot, resident) in only_here {
            let page = self.known_page(slot, &guard)?;
            let indexed = page.slot(slot);
            if indexed.word().state() == State::Accepted && indexed.word().seq() == 0 {
                let ballot = resident.ballot;
                let ticket = self
                    .append_internal(|out| record::accept(out, slot, ballot, resident.value()))?;
                indexed.set_word(indexed.word().moved(ticket.seq().0));
                page.touch();
                tickets.push(ticket);
            }
        }
        Ok(())
    }
}

/// Closes the log when the last handle is dropped.
#[derive(Debug)]
pub(crate) struct CloseOnDrop(pub(crate) Arc<Inner>);

impl CloseWithLastHandle for CloseOnDrop {}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        match self.0.close() {
            Ok(()) | Err(StorageError::Closed) => {}
            // Another thread may have been changing what this would free.
            Err(StorageError::Forked) => std::mem::forget(Arc::clone(&self.0)),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the consensus log was not closed cleanly"
            ),
        }
    }
}
