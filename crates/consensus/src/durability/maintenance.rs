//! The calls of operators and tests on an open log.

use esker_log::Seq;
use esker_log::reclaim::Reclaimed;

use crate::base::slot::Slot;
use crate::errors::protocol_errors::ReadError;
use crate::memory::entry::Entry;
use crate::state::inner::{ConsensusLog, Guard, Inner};
use crate::storage_error::StorageError;

/// Checkpoints, space, metrics of the underlying log, and single records: the calls of operators
/// and tests. A protocol needs none of them. From [`ConsensusLog::maintenance`].
#[derive(Debug, Clone, Copy)]
pub struct Maintenance<'a> {
    inner: &'a Inner,
}

impl ConsensusLog {
    /// The calls of operators and tests.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.learn(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// log.maintenance().checkpoint()?; // the next opening reads little
    /// assert_eq!(log.stats().since_checkpoint, 0);
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn maintenance(&self) -> Maintenance<'_> {
        Maintenance { inner: &self.inner }
    }
}

impl<'a> Maintenance<'a> {
    /// Makes everything committed durable, and writes a checkpoint of the index. Uncommitted
    /// entries are not affected. Blocks; other operations continue meanwhile.
    ///
    /// # Errors
    /// [`StorageError::ReadOnly`]; [`StorageError::Closed`], also when the log is closed meanwhile;
    /// [`StorageError::Log`], with [`esker_log::Error::Busy`] where a waker calls this on a thread
    /// that takes a checkpoint.
    pub fn checkpoint(&self) -> Result<(), StorageError> {
        self.inner.checkpoint_now()
    }

    /// Reclaims space now: drops segments as long as at most half of their bytes are live. Blocks,
    /// and is not throttled; other operations continue meanwhile. Truncations start the same work
    /// in the background. Call this to wait for it, in tests or as an operator.
    ///
    /// While a backup copies the logs of a manager, this does nothing. Nor does it where a waker
    /// calls it on a thread that reclaims.
    ///
    /// The background job does less: it copies live records only if more bytes are dead than live.
    ///
    /// # Durability
    /// Durable when it returns.
    ///
    /// # Errors
    /// [`StorageError::ReadOnly`]; [`StorageError::Closed`], also when the log is closed meanwhile;
    /// [`StorageError::CorruptedEntry`] and [`StorageError::Log`] when a live value cannot be read
    /// or copied. Space reclaimed before the error stays reclaimed, and no data is lost.
    pub fn reclaim(&self) -> Result<Reclaimed, StorageError> {
        self.inner.reclaim_now()
    }

    /// Returns the metrics of the underlying log: durations of syncs, its reserve, and more.
    /// No I/O.
    pub fn log_metrics(&self) -> esker_log::LogMetrics {
        self.inner.log.metrics()
    }

    /// The state in which opening found the underlying log, and what recovery did.
    pub fn recovery(&self) -> &'a esker_log::Recovery {
        self.inner.log.storage().recovery()
    }

    /// Returns every slot that is accepted and not committed, once, with the highest ballot under
    /// which it was accepted, in order. A new leader uses the answer to its
    /// [`promise`](ConsensusLog::promise) instead. The cost depends on the uncommitted entries, not
    /// on the log.
    ///
    /// In a log whose corrupt records were quarantined, the answer holds what is left: it omits
    /// lost accepts, and includes entries whose commit was lost.
    /// [`iterate`](ConsensusLog::iterate) reports slots that may be lost.
    ///
    /// # Errors
    /// [`StorageError::Closed`].
    pub fn scan_uncommitted<'g>(&self, guard: &'g Guard) -> Result<Vec<Entry<'g>>, StorageError> {
        self.inner.scan_uncommitted(&guard.0)
    }

    /// The sequence number of the record in the underlying log that holds a slot's value. `None`
    /// for a value that only memory has. Truncation may move the value.
    ///
    /// # Errors
    /// As [`ConsensusLog::read`].
    pub fn offset_of(&self, slot: Slot) -> Result<Option<Seq>, ReadError> {
        self.inner.offset_of(slot.0)
    }

    /// Returns the entry whose value is in this record. A later record may have replaced it.
    ///
    /// # Errors
    /// [`ReadError::InvalidOffset`] if no durable entry is there; [`ReadError::Storage`], with
    /// [`StorageError::Log`] and [`StorageError::CorruptedRecord`] for corruption.
    pub fn read_at(&self, offset: Seq) -> Result<Entry<'static>, ReadError> {
        self.inner.read_at(offset)
    }
}
