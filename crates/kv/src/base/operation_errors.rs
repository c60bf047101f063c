//! The errors of the operations on a store: each has what can happen there, and nothing else.

use std::path::PathBuf;

use esker_log::{InvalidOption, Seq, Trimmed};

#[cfg(doc)]
use crate::base::error::Error;
use crate::base::store_error::StoreError;

/// The error of opening a store: of [`StoreBuilder::open`](crate::StoreBuilder::open) and
/// [`ReadOnlyStoreBuilder::open`](crate::ReadOnlyStoreBuilder::open). No record was changed.
#[derive(Debug, Clone)]
pub enum OpenError {
    /// As [`Error::InvalidOption`].
    InvalidOption(InvalidOption),
    /// The log has more keys than an index can have.
    IndexFull,
    /// The writer dropped records a hundred times while they were read. Only when opening for
    /// reading.
    Trimmed(Trimmed),
    /// The log could not be opened or read.
    Store(StoreError),
}

/// The error of reading a store: of the methods of [`KeyspaceReader`](crate::KeyspaceReader) and
/// [`Snapshot`](crate::Snapshot), of the items of a [`Scan`](crate::Scan), of
/// [`ReadOnlyStore::refresh`](crate::ReadOnlyStore::refresh) and of
/// [`check_records`](crate::check_records).
#[derive(Debug, Clone)]
pub enum ReadError {
    /// The key exceeds [`KEY_LIMIT`](crate::KEY_LIMIT).
    KeyTooLarge {
        /// The length in bytes.
        size: usize,
    },
    /// As [`Error::KeyspaceDropped`].
    KeyspaceDropped {
        /// The name.
        name: String,
    },
    /// The keyspace is of another store than the snapshot. Only of a
    /// [`Snapshot`](crate::Snapshot).
    AnotherStore,
    /// As [`Error::SnapshotExpired`]. Only of a [`Snapshot`](crate::Snapshot) and of a scan.
    SnapshotExpired,
    /// The writer dropped records a hundred times while they were read. Only where another process
    /// may write the store: of a [`ReadOnlyStore`](crate::ReadOnlyStore) and of
    /// [`check_records`](crate::check_records), which does not try again.
    Trimmed(Trimmed),
    /// The log has more keys than an index can have. Only of a
    /// [`ReadOnlyStore`](crate::ReadOnlyStore), which also refreshes when the writer dropped a
    /// record that it reads.
    IndexFull,
    /// The store is closed, has failed or is damaged, or its log could not be read.
    Store(StoreError),
}

/// The error of a write: of the methods of [`Keyspace`](crate::Keyspace) and
/// [`Batch`](crate::Batch), of [`Store::write`](crate::Store::write), and of waiting for a
/// [`Ticket`](crate::Ticket) with a deadline. Except for [`WriteError::Timeout`] and
/// [`StoreError::Internal`], nothing was written.
#[derive(Debug, Clone)]
pub enum WriteError {
    /// The key exceeds [`KEY_LIMIT`](crate::KEY_LIMIT).
    KeyTooLarge {
        /// The length in bytes.
        size: usize,
    },
    /// The value exceeds [`VALUE_LIMIT`](crate::VALUE_LIMIT).
    ValueTooLarge {
        /// The length in bytes.
        size: usize,
    },
    /// As [`Error::KeyspaceDropped`].
    KeyspaceDropped {
        /// The name.
        name: String,
    },
    /// The keyspaces of a batch are of several stores, or of another one. Only of a batch.
    AnotherStore,
    /// A condition does not hold. Only of a batch.
    ConditionFailed {
        /// The number of the condition in its batch, from 0.
        condition: usize,
    },
    /// As [`Error::Contended`]. Only of a batch.
    Contended,
    /// As [`Error::IndexFull`].
    IndexFull,
    /// The time has passed. The write was accepted, and may still become durable. Only of
    /// [`Ticket::blocking_wait_timeout`](crate::Ticket::blocking_wait_timeout).
    Timeout,
    /// The store is closed, has failed or is damaged, or its log refused the write. With
    /// [`StoreError::Internal`], and from a ticket, the write may or may not survive.
    Store(StoreError),
}

/// The error of creating or dropping a keyspace: of
/// [`Store::create_keyspace`](crate::Store::create_keyspace) and
/// [`Store::drop_keyspace`](crate::Store::drop_keyspace).
#[derive(Debug, Clone)]
pub enum KeyspaceError {
    /// No keyspace can have the name of the one to be created; as [`Error::InvalidName`].
    InvalidName {
        /// The length in bytes.
        size: usize,
    },
    /// There is no keyspace of the name of the one to be dropped.
    KeyspaceNotFound {
        /// The name.
        name: String,
    },
    /// The default keyspace cannot be dropped.
    DefaultKeyspace,
    /// As [`Error::IndexFull`]; or all numbers of keyspaces were used.
    IndexFull,
    /// The store is closed, has failed or is damaged, or its log has. With
    /// [`StoreError::Quarantined`], a keyspace of the name may exist already.
    Store(StoreError),
}

/// The error of watching a store: of [`Store::watch`](crate::Store::watch) and the methods of
/// [`Watch`](crate::Watch).
#[derive(Debug, Clone)]
pub enum WatchError {
    /// Cleaning has dropped changes that the watch did not deliver. Read a durable snapshot, and
    /// watch from its position.
    Trimmed(Trimmed),
    /// The position to watch from is above what is durable; as [`Error::NotDurable`].
    NotDurable {
        /// The position.
        position: Seq,
        /// The position up to which everything is durable.
        durable: Seq,
    },
    /// The time has passed. Only of
    /// [`Watch::blocking_next_timeout`](crate::Watch::blocking_next_timeout).
    Timeout,
    /// The store or the reader is closed, or its log could not be read. With
    /// [`StoreError::Quarantined`], changes are among quarantined records, and the watch continues
    /// after them.
    Store(StoreError),
}

/// The error of a backup: of [`Store::backup`](crate::Store::backup) and
/// [`backup_log`](crate::backup_log). The store is not affected, and the files of the copy are
/// removed.
#[derive(Debug, Clone)]
pub enum BackupError {
    /// The directory for the copy holds files; as [`Error::NotEmpty`].
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// An option of the copy is out of its range.
    InvalidOption(InvalidOption),
    /// The writer dropped records a hundred times before they were copied. Only of
    /// [`backup_log`](crate::backup_log).
    Trimmed(Trimmed),
    /// The store was closed meanwhile or is damaged, its log could not be read, or the log of the
    /// copy could not be written.
    Store(StoreError),
}

/// The error of applying the records of a log to an index. It becomes that of the call: opening,
/// refreshing or reading.
#[derive(Debug)]
pub(crate) enum ApplyError {
    IndexFull,
    Trimmed(Trimmed),
    Store(StoreError),
}
