//! The errors of opening logs, of a manager of many, and of backups.

use std::collections::BTreeMap;
use std::path::PathBuf;

use esker_log::InvalidOption;

use crate::storage_error::StorageError;

/// Why a log or a manager was not opened, or a directory not read without opening it.
#[derive(Debug, Clone)]
pub enum OpenError {
    /// An option is out of its range. Nothing was opened.
    InvalidOption(InvalidOption),
    /// The key of a manager's log exceeds [`LABEL_LIMIT`](crate::LABEL_LIMIT).
    EntryTooLarge {
        /// The size of the key in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The log was created with another label than the one it is opened with: it is another log.
    WrongLabel {
        /// The label that is stored with the log.
        found: Vec<u8>,
        /// The label in the options.
        expected: Vec<u8>,
    },
    /// The directory of a log that was created is gone, or holds no log any more. What its node
    /// promised is lost with it, so no empty log takes its place. Put the directory back; or call
    /// [`LogManager::remove`](crate::LogManager::remove), and let the node join its group as a new
    /// member.
    MissingLog {
        /// The key of the log.
        key: Vec<u8>,
        /// Its directory.
        dir: PathBuf,
    },
    /// The registry of keys cannot be read. Move it out of the directory of the manager: opening
    /// makes it again from the labels of the logs.
    CorruptedRegistry {
        /// The directory of the registry.
        dir: PathBuf,
        /// Why it cannot be read.
        cause: Box<StorageError>,
    },
    /// A backup that was interrupted. Delete the directory, and back up again.
    UnfinishedBackup {
        /// The directory.
        dir: PathBuf,
    },
    /// See [`StorageError`].
    Storage(StorageError),
}

/// Why a manager did not close or remove a log, or was not closed cleanly.
#[derive(Debug, Clone)]
pub enum ManagerError {
    /// There are references to the log. Release them first.
    InUse {
        /// The number of references.
        references: usize,
    },
    /// The manager was closed while there were references to some logs. These logs stay open until
    /// the last of their guards is dropped.
    LeakedReferences {
        /// The keys of these logs, and the references to each.
        logs: BTreeMap<Vec<u8>, usize>,
    },
    /// The directory of the key has the log of another one.
    WrongLabel {
        /// The label that is stored with the log.
        found: Vec<u8>,
        /// The key.
        expected: Vec<u8>,
    },
    /// See [`StorageError`].
    Storage(StorageError),
}

/// Why a backup was not made. What was copied is removed.
#[derive(Debug, Clone)]
pub enum BackupError {
    /// The directory for the backup holds something. Nothing was changed.
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// A log could not be opened to copy it.
    Open(OpenError),
    /// See [`StorageError`].
    Storage(StorageError),
}

/// The log in the directory of a key has another label.
#[derive(Debug)]
pub(crate) struct WrongLabel {
    pub(crate) found: Vec<u8>,
    pub(crate) expected: Vec<u8>,
}

impl From<WrongLabel> for OpenError {
    fn from(WrongLabel { found, expected }: WrongLabel) -> Self {
        Self::WrongLabel { found, expected }
    }
}

impl From<WrongLabel> for ManagerError {
    fn from(WrongLabel { found, expected }: WrongLabel) -> Self {
        Self::WrongLabel { found, expected }
    }
}

impl From<InvalidOption> for OpenError {
    fn from(cause: InvalidOption) -> Self {
        Self::InvalidOption(cause)
    }
}

impl From<OpenError> for BackupError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Storage(error) => Self::Storage(error),
            error => Self::Open(error),
        }
    }
}
