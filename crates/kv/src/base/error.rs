//! The error of any operation on a store.

use std::fmt;
use std::path::PathBuf;

use esker_log::{InvalidOption, Seq, Trimmed};

use crate::base::store_error::StoreError;
use crate::limits::{KEY_LIMIT, NAME_LIMIT, VALUE_LIMIT};

/// The result of any operation on a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of any operation on a store, for programs that return it with `?`.
///
/// Each operation has a smaller error, with what can happen there, and all of these convert to this
/// one: [`OpenError`](crate::OpenError), [`ReadError`](crate::ReadError),
/// [`WriteError`](crate::WriteError), [`KeyspaceError`](crate::KeyspaceError),
/// [`WatchError`](crate::WatchError) and [`BackupError`](crate::BackupError). What every operation
/// can meet is a [`StoreError`].
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
    /// Cleaning has dropped records that were not read or delivered yet. For a watch, read a
    /// durable snapshot, and watch from its position.
    Trimmed(Trimmed),
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
    /// The time has passed. A write that was accepted may still become durable.
    Timeout,
    /// The index is full: its entries take [`Options::index_bytes`](crate::Options::index_bytes).
    /// Nothing was written. Values of existing keys can still be put. Delete keys, or use several
    /// stores. Memory of a deleted key is used again for keys of the same length, in steps of
    /// eight bytes, once the delete is durable and no snapshot reads the key.
    IndexFull,
    /// An option is out of its range, one of the store or one that it passes to its log. Nothing
    /// was opened.
    InvalidOption(InvalidOption),
    /// The store is closed, has failed or is damaged, or its log or the disk is.
    Store(StoreError),
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
            Error::Trimmed(Trimmed { oldest }) => write!(
                f,
                "cleaning dropped records before they were read; the oldest that is left is \
                 {oldest}: try again, or watch from the position of a snapshot"
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
            Error::Timeout => esker_log::Error::Timeout.fmt(f),
            Error::IndexFull => {
                f.write_str("the index is full; delete keys, or use several stores")
            }
            Error::InvalidOption(cause) => cause.fmt(f),
            Error::Store(error) => error.fmt(f),
        }
    }
}

impl Error {
    /// Returns whether the only cause is a lack of disk space. The store stays usable, and a write
    /// succeeds when there is room.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::Store(error) if error.is_no_space())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // This one displays as its cause does, so its source is the one below.
            Error::Store(error) => error.source(),
            _ => None,
        }
    }
}

impl From<esker_log::Error> for Error {
    fn from(cause: esker_log::Error) -> Self {
        match cause {
            esker_log::Error::InvalidOption(cause) => Error::InvalidOption(cause),
            esker_log::Error::Timeout => Error::Timeout,
            cause => Error::Store(cause.into()),
        }
    }
}
