//! The errors of snapshots: creating, finding, restoring and sending them.

use std::io;
use std::sync::Arc;

use esker_log::InvalidOption;

use crate::base::slot::Slot;
use crate::storage_error::StorageError;

/// Why a snapshot was not found or restored, or entries were not dropped under one.
#[derive(Debug, Clone)]
pub enum SnapshotError {
    /// There is no snapshot, or none at the slot. Restore from the entries, or from another
    /// replica.
    NoSnapshot,
    /// A snapshot is not whole. An older one may be; see also
    /// [`Snapshots::latest`](crate::Snapshots::latest).
    CorruptedSnapshot {
        /// The slot of the snapshot.
        slot: Slot,
        /// The log's error, with file and offset.
        cause: esker_log::Error,
    },
    /// A slot to be truncated is missing or not committed. Nothing was dropped.
    Gap {
        /// The first such slot.
        slot: Slot,
    },
    /// Entries that no whole snapshot covers were truncated.
    Truncated {
        /// Slots up to and including this one were truncated.
        floor: Slot,
    },
    /// The snapshot is of a slot that no log has.
    SlotOutOfRange {
        /// The slot.
        slot: Slot,
        /// The first slot that is out of range.
        limit: Slot,
    },
    /// The count of [`Snapshots::keep`](crate::Snapshots::keep) is out of its range.
    InvalidOption(InvalidOption),
    /// See [`StorageError`].
    Storage(StorageError),
}

/// Why a snapshot was not created. What was there is unchanged.
#[derive(Debug, Clone)]
pub enum CreateSnapshotError {
    /// This log never accepted a value in this slot, as far as it knows.
    SlotNotFound {
        /// The slot.
        slot: Slot,
    },
    /// The slot is accepted, but not durably committed.
    NotCommitted {
        /// The slot.
        slot: Slot,
    },
    /// A slot below the one requested is missing or not committed.
    Gap {
        /// The first such slot.
        slot: Slot,
    },
    /// The slot is below the floor, where no entries follow that a state machine could continue
    /// with.
    Truncated {
        /// Slots up to and including this one were truncated.
        floor: Slot,
    },
    /// The slot is one of the last two there are.
    SlotOutOfRange {
        /// The slot.
        slot: Slot,
        /// The first slot that is out of range.
        limit: Slot,
    },
    /// The note exceeds [`SNAPSHOT_NOTE_LIMIT`](crate::SNAPSHOT_NOTE_LIMIT).
    EntryTooLarge {
        /// The size of the note in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The stream with the state failed.
    Stream(Arc<io::Error>),
    /// See [`StorageError`].
    Storage(StorageError),
}

/// Why a snapshot was not sent to another replica, or not received from one.
#[derive(Debug, Clone)]
pub enum TransferError {
    /// The connection to the other replica failed.
    Stream(Arc<io::Error>),
    /// The other replica sent what does not belong to a snapshot, or stopped.
    Transfer {
        /// The rule that it breaks.
        what: &'static str,
    },
    /// The snapshot was received, and removed before its receiver could read its header.
    NoSnapshot,
    /// The snapshot cannot be read any more.
    CorruptedSnapshot {
        /// The slot of the snapshot.
        slot: Slot,
        /// The log's error, with file and offset.
        cause: esker_log::Error,
    },
    /// See [`StorageError`].
    Storage(StorageError),
}

/// Returns the error of a stream: `other` makes it, unless a log's own error passed through.
pub(crate) fn from_stream<E: From<StorageError>>(
    error: io::Error,
    other: impl FnOnce(Arc<io::Error>) -> E,
) -> E {
    match error.downcast::<esker_log::Error>() {
        Ok(cause) => StorageError::from_log(cause).into(),
        Err(error) => other(Arc::new(error)),
    }
}
