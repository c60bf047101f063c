//! The error of an operation on a store.

use std::fmt;
use std::path::PathBuf;

use esker_disk::process;
use esker_log::Seq;

use crate::health::{BrokenInvariant, Refusal};
use crate::index::table::IndexError;
use crate::limits::{KEY_LIMIT, NAME_LIMIT, VALUE_LIMIT};

/// The result of an operation on a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of an operation on a store.
///
/// The message says what failed and what to do about it. It does not repeat the cause, which is in
/// [`source`](std::error::Error::source).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The key exceeds [`KEY_LIMIT`]. Nothing was written.
    KeyTooLarge {
        /// The length in bytes.
        size: usize,
    },
    /// The value exceeds [`VALUE_LIMIT`]. Nothing was written.
    ValueTooLarge {
        /// The length in bytes.
        size: usize,
    },
    /// A condition of a batch does not hold. Nothing was written.
    ConditionFailed {
        /// The number of the condition in its batch, from 0.
        condition: usize,
    },
    /// Other writers changed the keys of a batch's conditions each time between the check of the
    /// conditions and the write, a hundred times. Nothing was written. Try again.
    Contended,
    /// The snapshot is too old: it was held for too long, or too much was overwritten since. Take
    /// another.
    SnapshotExpired,
    /// Cleaning has dropped changes that the watch did not deliver. Read a durable snapshot, and
    /// watch from its position.
    Trimmed {
        /// The oldest record that is left.
        oldest: Seq,
    },
    /// A position to watch from is above what is durable. It may be of another store, or of changes
    /// that a backup does not have.
    NotDurable {
        /// The position.
        position: Seq,
        /// The position up to which everything is durable.
        durable: Seq,
    },
    /// The directory for a backup holds files. Nothing was written. Name one that is empty, or does
    /// not exist.
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no keyspace of this name.
    KeyspaceNotFound {
        /// The name.
        name: String,
    },
    /// The keyspace of this handle was dropped.
    KeyspaceDropped {
        /// The name.
        name: String,
    },
    /// A keyspace cannot have this name: it is empty, or exceeds [`NAME_LIMIT`].
    InvalidName {
        /// The length in bytes.
        size: usize,
    },
    /// The default keyspace cannot be dropped.
    DefaultKeyspace,
    /// The handle of a keyspace belongs to another store.
    AnotherStore,
    /// The index is full: its entries take [`Options::index_bytes`](crate::Options::index_bytes).
    /// Nothing was written. Values of existing keys can still be put. Delete keys, or use several
    /// stores. Memory of a deleted key is used again for keys of the same length, in steps of
    /// eight bytes, once the delete is durable and no snapshot reads the key.
    IndexFull,
    /// A record has a valid checksum, but its content is not valid. Nothing was changed.
    CorruptedRecord {
        /// The record's sequence number.
        seq: Seq,
        /// The rule of the format that it breaks.
        what: &'static str,
    },
    /// Records of the store were corrupt and are quarantined, and the answer may be among them:
    /// every sequence number above `from` and up to `to`. A key is known again when it is put or
    /// deleted. Restore a backup, or export what is left, see
    /// [`ReadOnlyOptions::skip_quarantined`](crate::ReadOnlyOptions::skip_quarantined).
    Quarantined {
        /// The last valid sequence number before the gap.
        from: Seq,
        /// The last sequence number in the gap.
        to: Seq,
    },
    /// An option is out of its range, one of the store or one that it passes to its log. Nothing
    /// was opened.
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The rule that the option must follow.
        rule: String,
    },
    /// An invariant of the store does not hold, which is a bug. The store refuses every later call
    /// with this error, cleans nothing and writes no checkpoint. A write that returned it may or
    /// may not survive. Report it, and open the store again: that builds the index from the log.
    Internal {
        /// The invariant, as the sentence that should be true.
        invariant: &'static str,
    },
    /// The store was closed. Stop using it.
    Closed,
    /// `fork` made this process of one that used Esker, and nothing was done: see
    /// [`esker_log::Error::Forked`].
    Forked,
    /// The underlying log failed. After [`esker_log::Error::Poisoned`] the store accepts nothing
    /// until it is reopened.
    Log(esker_log::Error),
}

/// Refuses a call in a child that `fork` made.
#[inline]
pub(crate) fn refuse_if_forked() -> Result<()> {
    if process::is_forked() { Err(Error::Forked) } else { Ok(()) }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::KeyTooLarge { size } => {
                write!(f, "a key of {size} bytes exceeds the limit of {KEY_LIMIT} bytes")
            }
            Error::ValueTooLarge { size } => {
                write!(f, "a value of {size} bytes exceeds the limit of {VALUE_LIMIT} bytes")
            }
            Error::ConditionFailed { condition } => {
                write!(f, "condition {condition} of the batch does not hold; nothing was written")
            }
            Error::Contended => f.write_str(
                "other writers changed the keys of the batch's conditions too often; nothing was \
                 written; try again",
            ),
            Error::SnapshotExpired => f.write_str("the snapshot has expired; take another"),
            Error::Trimmed { oldest } => write!(
                f,
                "changes were dropped before they were delivered; the oldest record left is \
                 {oldest}: read a snapshot, and watch from its position"
            ),
            Error::NotDurable { position, durable } => {
                write!(f, "position {position} is above {durable}, the last durable one")
            }
            Error::NotEmpty { dir } => write!(
                f,
                "{} holds files; a backup needs a directory that is empty or does not exist",
                dir.display()
            ),
            Error::KeyspaceNotFound { name } => {
                write!(f, "there is no keyspace {name:?}")
            }
            Error::KeyspaceDropped { name } => write!(f, "the keyspace {name:?} was dropped"),
            Error::InvalidName { size } => {
                write!(f, "the name of a keyspace has 1 to {NAME_LIMIT} bytes, not {size}")
            }
            Error::DefaultKeyspace => f.write_str("the default keyspace cannot be dropped"),
            Error::AnotherStore => f.write_str("the keyspace belongs to another store"),
            Error::IndexFull => {
                f.write_str("the index is full; delete keys, or use several stores")
            }
            Error::CorruptedRecord { seq, what } => {
                write!(f, "record {seq} is not a valid record of a store: {what}")
            }
            Error::Quarantined { from, to } => write!(
                f,
                "the records above {from} up to {to} are quarantined, and the answer may be among \
                 them; restore a backup, or save what is left"
            ),
            Error::InvalidOption { option, rule } => write!(f, "option {option} must be {rule}"),
            Error::Internal { invariant } => write!(
                f,
                "the store has failed, because this does not hold: {invariant}; open it again, and \
                 report this"
            ),
            Error::Closed => f.write_str("the store is closed"),
            Error::Forked => esker_log::Error::Forked.fmt(f),
            Error::Log(cause) => cause.fmt(f),
        }
    }
}

impl Error {
    /// Returns whether the only cause is a lack of disk space. The store stays usable, and a write
    /// succeeds when there is room.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::Log(cause) if cause.is_no_space())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // This one displays as its cause does, so its source is the one below.
            Error::Log(cause) => cause.source(),
            _ => None,
        }
    }
}

impl From<esker_log::Error> for Error {
    fn from(cause: esker_log::Error) -> Self {
        match cause {
            esker_log::Error::Closed => Error::Closed,
            esker_log::Error::Forked => Error::Forked,
            esker_log::Error::Quarantined(esker_log::SeqRange { from, to }) => {
                Error::Quarantined { from, to }
            }
            esker_log::Error::InvalidOption(esker_log::InvalidOption { option, rule }) => {
                Error::InvalidOption { option, rule }
            }
            cause => Error::Log(cause),
        }
    }
}

impl From<BrokenInvariant> for Error {
    fn from(BrokenInvariant(invariant): BrokenInvariant) -> Self {
        Error::Internal { invariant }
    }
}

impl From<IndexError> for Error {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::ArenaFull => Error::IndexFull,
            IndexError::Broken(broken) => broken.into(),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Closed => Error::Closed,
            Refusal::Failed(broken) => broken.into(),
        }
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        size if size > KEY_LIMIT => Err(Error::KeyTooLarge { size }),
        _ => Ok(()),
    }
}

pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    match value.len() {
        size if size > VALUE_LIMIT => Err(Error::ValueTooLarge { size }),
        _ => Ok(()),
    }
}

pub(crate) fn check_name(name: &str) -> Result<()> {
    match name.len() {
        1..=NAME_LIMIT => Ok(()),
        size => Err(Error::InvalidName { size }),
    }
}
