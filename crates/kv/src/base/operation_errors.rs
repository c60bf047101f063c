//! The errors of the operations on a store: each has what can happen there, and nothing else.

use std::path::PathBuf;

use esker_log::{InvalidOption, Seq, SeqRange, Trimmed};

use crate::base::corrupted_record::CorruptedRecord;
#[cfg(doc)]
use crate::base::error::Error;
use crate::base::store_error::StoreError;

/// The error of opening a store: of [`StoreBuilder::open`](crate::StoreBuilder::open) and
/// [`ReadOnlyStoreBuilder::open`](crate::ReadOnlyStoreBuilder::open). No record was changed.
#[derive(Debug, Clone)]
pub enum OpenError {
    /// As [`Error::InvalidOption`].
    InvalidOption(InvalidOption),
    /// As [`Error::CorruptedRecord`].
    CorruptedRecord(CorruptedRecord),
    /// The log has more keys than an index can have.
    IndexFull,
    /// The writer dropped records a hundred times while they were read. Only when opening for
    /// reading.
    Trimmed(Trimmed),
    /// The log could not be opened or read.
    Store(StoreError),
}

/// The error of following the log of another process: of
/// [`ReadOnlyStore::refresh`](crate::ReadOnlyStore::refresh). What was visible stays visible.
#[derive(Debug, Clone)]
pub enum RefreshError {
    /// As [`Error::CorruptedRecord`].
    CorruptedRecord(CorruptedRecord),
    /// The log has more keys than an index can have.
    IndexFull,
    /// The writer dropped records a hundred times while they were read.
    Trimmed(Trimmed),
    /// The reader is closed, or the log could not be read.
    Store(StoreError),
}

/// The error of checking the records of a log: of [`check_records`](crate::check_records).
#[derive(Debug, Clone)]
pub enum CheckError {
    /// As [`Error::CorruptedRecord`].
    CorruptedRecord(CorruptedRecord),
    /// The writer dropped records before they were read.
    Trimmed(Trimmed),
    /// The reader is closed, or the log could not be read.
    Store(StoreError),
}

/// The error of reading a keyspace: of the methods of [`KeyspaceReader`](crate::KeyspaceReader).
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
    /// As [`Error::Quarantined`].
    Quarantined(SeqRange),
    /// As [`Error::CorruptedRecord`].
    CorruptedRecord(CorruptedRecord),
    /// The log has more keys than an index can have. Only in a
    /// [`ReadOnlyStore`](crate::ReadOnlyStore), which refreshes when the writer dropped a record
    /// that it reads.
    IndexFull,
    /// The writer dropped records a hundred times while they were read. Only in a
    /// [`ReadOnlyStore`](crate::ReadOnlyStore).
    Trimmed(Trimmed),
    /// The store is closed or has failed, or its log could not be read.
    Store(StoreError),
}

/// The error of reading a store at a point in time: of the methods of
/// [`Snapshot`](crate::Snapshot), and of the items of a [`Scan`](crate::Scan).
#[derive(Debug, Clone)]
pub enum SnapshotError {
    /// As [`Error::SnapshotExpired`].
    Expired,
    /// The handle of a keyspace belongs to another store.
    AnotherStore,
    /// The keyspace could not be read.
    Read(ReadError),
}

/// The error of writing to a keyspace: of the methods of [`Keyspace`](crate::Keyspace). Nothing
/// was written.
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
    /// As [`Error::IndexFull`].
    IndexFull,
    /// The store is closed or has failed, or its log refused the write. With
    /// [`StoreError::Internal`], the write may or may not survive.
    Store(StoreError),
}

/// The error of adding a write or a condition to a [`Batch`](crate::Batch). Nothing was added.
#[derive(Debug, Clone)]
pub enum BatchError {
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
    /// The keyspace is of another store than those of the batch.
    AnotherStore,
}

/// The error of writing a batch: of [`Store::write`](crate::Store::write). Nothing was written.
#[derive(Debug, Clone)]
pub enum WriteBatchError {
    /// A condition of the batch does not hold.
    ConditionFailed {
        /// The number of the condition in its batch, from 0.
        condition: usize,
    },
    /// As [`Error::Contended`].
    Contended,
    /// The batch is of another store.
    AnotherStore,
    /// As [`Error::KeyspaceDropped`].
    KeyspaceDropped {
        /// The name.
        name: String,
    },
    /// As [`Error::IndexFull`].
    IndexFull,
    /// The key of a condition is unknown; as [`Error::Quarantined`].
    Quarantined(SeqRange),
    /// The record of a key of a condition is not valid; as [`Error::CorruptedRecord`].
    CorruptedRecord(CorruptedRecord),
    /// The store is closed or has failed, or its log refused the batch. With
    /// [`StoreError::Internal`], the batch may or may not survive.
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
    NotFound {
        /// The name.
        name: String,
    },
    /// The default keyspace cannot be dropped.
    DefaultKeyspace,
    /// A keyspace of the name may exist already; as [`Error::Quarantined`].
    Quarantined(SeqRange),
    /// The record of an entry of the catalog is not valid; as [`Error::CorruptedRecord`].
    CorruptedRecord(CorruptedRecord),
    /// As [`Error::IndexFull`]; or all numbers of keyspaces were used.
    IndexFull,
    /// The store is closed or has failed, or its log has.
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
    /// Changes are among quarantined records. The watch continues after them.
    Quarantined(SeqRange),
    /// As [`Error::CorruptedRecord`]. The watch does not continue.
    CorruptedRecord(CorruptedRecord),
    /// The time has passed. Only of
    /// [`Watch::blocking_next_timeout`](crate::Watch::blocking_next_timeout).
    Timeout,
    /// The store or the reader is closed, or its log could not be read.
    Store(StoreError),
}

/// The error of waiting for a write with a deadline: of
/// [`Ticket::blocking_wait_timeout`](crate::Ticket::blocking_wait_timeout).
#[derive(Debug, Clone)]
pub enum WaitError {
    /// The time has passed. The write may still become durable.
    Timeout,
    /// The log failed. The write may or may not survive; reopening decides.
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
    /// Records of the store are quarantined; as [`Error::Quarantined`].
    Quarantined(SeqRange),
    /// The writer dropped records a hundred times before they were copied. Only of
    /// [`backup_log`](crate::backup_log).
    Trimmed(Trimmed),
    /// The store was closed meanwhile, its log could not be read, or the log of the copy could not
    /// be written.
    Store(StoreError),
}

/// The error of cleaning: of [`Store::compact`](crate::Store::compact).
#[derive(Debug, Clone)]
pub enum CompactError {
    /// Records of the store are quarantined, so it is not cleaned; as [`Error::Quarantined`].
    Quarantined(SeqRange),
    /// As [`Error::CorruptedRecord`].
    CorruptedRecord(CorruptedRecord),
    /// The store was closed meanwhile or has failed, or its log has.
    Store(StoreError),
}
