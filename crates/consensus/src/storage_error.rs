//! The error that every operation can meet.

use std::fmt;

use esker_disk::process;
use esker_log::Seq;

use crate::base::slot::Slot;

use crate::read_only::ReadOnlyReason;

/// Why a log serves no operation, or cannot read or write its records. Every operation can meet
/// it, and an operation that meets nothing else returns it: tickets, watches, checkpoints, closing.
#[derive(Debug, Clone)]
pub enum StorageError {
    /// The log was closed, or its manager. Stop using it.
    Closed,
    /// `fork` made this process of one that used Esker, and nothing was done: see
    /// [`esker_log::Error::Forked`].
    Forked,
    /// This log may lack what its node promised, so it is read-only. The reason says what to do.
    ReadOnly {
        /// Why it is read-only.
        reason: ReadOnlyReason,
    },
    /// The value of a slot, or the index page of the slot, cannot be read: its bytes are corrupt or
    /// quarantined. Other slots are not affected.
    CorruptedEntry {
        /// The slot.
        slot: Slot,
        /// The log's error, with file and offset.
        cause: esker_log::Error,
    },
    /// A record of the log has a valid checksum, but its content is invalid.
    CorruptedRecord {
        /// The record's sequence number.
        seq: Seq,
        /// The rule that it breaks.
        what: &'static str,
    },
    /// The state of the open log contradicts itself: a bug of this crate. The log accepts nothing
    /// until it is reopened, which replays its records.
    Internal {
        /// The invariant that does not hold.
        invariant: &'static str,
    },
    /// The underlying log failed. After [`esker_log::Error::Poisoned`] it accepts nothing until it
    /// is reopened.
    Log(esker_log::Error),
}

/// Refuses a call in a child that `fork` made.
#[inline]
pub(crate) fn refuse_if_forked() -> Result<(), StorageError> {
    if process::is_forked() { Err(StorageError::Forked) } else { Ok(()) }
}

impl StorageError {
    /// The error of a call of the underlying log, whichever of its calls it was.
    pub(crate) fn from_log(cause: impl Into<esker_log::Error>) -> Self {
        match cause.into() {
            esker_log::Error::Closed => Self::Closed,
            esker_log::Error::Forked => Self::Forked,
            cause => Self::Log(cause),
        }
    }

    /// Whether the disk, or the quota of the user, is full.
    pub(crate) fn is_no_space(&self) -> bool {
        matches!(self, Self::Log(cause) if cause.is_no_space())
    }
}

impl From<esker_log::Error> for StorageError {
    fn from(cause: esker_log::Error) -> Self {
        Self::from_log(cause)
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the log is closed"),
            Self::Forked => esker_log::Error::Forked.fmt(f),
            Self::ReadOnly { reason } => write!(f, "the log is read-only: {}", reason.advice()),
            Self::CorruptedEntry { slot, .. } => write!(f, "slot {slot} cannot be read"),
            Self::CorruptedRecord { seq, what } => {
                write!(f, "record {seq} is not a valid record of a consensus log: {what}")
            }
            Self::Internal { invariant } => write!(
                f,
                "the open log contradicts itself: it does not hold that {invariant}; reopen it, \
                 and report this bug"
            ),
            Self::Log(cause) => cause.fmt(f),
        }
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // This one displays as its cause does, so its source is the one below.
            Self::Log(cause) => cause.source(),
            Self::CorruptedEntry { cause, .. } => Some(cause),
            Self::Closed
            | Self::Forked
            | Self::ReadOnly { .. }
            | Self::CorruptedRecord { .. }
            | Self::Internal { .. } => None,
        }
    }
}
