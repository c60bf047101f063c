//! The conversions of errors, and what the error of each operation has in common with the others:
//! its message is that of [`Error`], and it nests a [`StorageError`].

use std::fmt;

use crate::errors::Error;
use crate::errors::manager_errors::{BackupError, ManagerError, OpenError};
use crate::errors::protocol_errors::{
    AcceptBatchError, AcceptError, CommitError, LearnError, PromiseError, ReadError, TruncateError,
};
use crate::errors::snapshot_errors::{CreateSnapshotError, SnapshotError, TransferError};
use crate::storage_error::StorageError;

/// Implements what all errors of operations have in common. The patterns are variants with
/// a cause beside that of the nested error.
macro_rules! operation_errors {
    ($($error:ident { $($source:pat => $cause:expr,)* })*) => { $(
        impl From<StorageError> for $error {
            fn from(error: StorageError) -> Self {
                Self::Storage(error)
            }
        }

        impl From<esker_log::Error> for $error {
            fn from(cause: esker_log::Error) -> Self {
                Self::Storage(StorageError::from_log(cause))
            }
        }

        impl fmt::Display for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Error::from(self.clone()).fmt(f)
            }
        }

        impl std::error::Error for $error {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                use $error::*;
                match self {
                    Storage(error) => error.source(),
                    $($source => $cause,)*
                    #[allow(unreachable_patterns)]
                    _ => None,
                }
            }
        }
    )* };
}

operation_errors! {
    PromiseError {}
    AcceptError {}
    AcceptBatchError {
        // It displays as the nested one does.
        Refused(error) => error.source(),
        Stopped { source, .. } => Some(&**source),
    }
    LearnError {}
    CommitError {}
    TruncateError {}
    ReadError {}
    SnapshotError { CorruptedSnapshot { cause, .. } => Some(cause), }
    CreateSnapshotError { Stream(cause) => Some(&**cause), }
    TransferError {
        Stream(cause) => Some(&**cause),
        CorruptedSnapshot { cause, .. } => Some(cause),
    }
    OpenError { CorruptedRegistry { cause, .. } => Some(&**cause), }
    ManagerError {}
    BackupError { Open(error) => error.source(), }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Error::Storage(error)
    }
}

impl From<esker_log::Error> for Error {
    fn from(cause: esker_log::Error) -> Self {
        Error::Storage(StorageError::from_log(cause))
    }
}

impl From<PromiseError> for Error {
    fn from(error: PromiseError) -> Self {
        match error {
            PromiseError::StaleBallot { promised } => Error::StaleBallot { promised },
            PromiseError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<AcceptError> for Error {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::StaleBallot { promised } => Error::StaleBallot { promised },
            AcceptError::AlreadyCommitted { entry } => Error::AlreadyCommitted { entry },
            AcceptError::AnotherValue { slot, ballot } => Error::AnotherValue { slot, ballot },
            AcceptError::Truncated { floor } => Error::Truncated { floor },
            AcceptError::SlotOutOfRange { slot, limit } => Error::SlotOutOfRange { slot, limit },
            AcceptError::BufferFull { used, size } => Error::BufferFull { used, size },
            AcceptError::EntryTooLarge { size, limit } => Error::EntryTooLarge { size, limit },
            AcceptError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<LearnError> for Error {
    fn from(error: LearnError) -> Self {
        match error {
            LearnError::AlreadyCommitted { entry } => Error::AlreadyCommitted { entry },
            LearnError::Truncated { floor } => Error::Truncated { floor },
            LearnError::SlotOutOfRange { slot, limit } => Error::SlotOutOfRange { slot, limit },
            LearnError::EntryTooLarge { size, limit } => Error::EntryTooLarge { size, limit },
            LearnError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::SlotNotFound { slot } => Error::SlotNotFound { slot },
            CommitError::BallotMismatch { slot, accepted } => {
                Error::BallotMismatch { slot, accepted }
            }
            CommitError::Truncated { floor } => Error::Truncated { floor },
            CommitError::Gap { slot } => Error::Gap { slot },
            CommitError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<TruncateError> for Error {
    fn from(error: TruncateError) -> Self {
        match error {
            TruncateError::Gap { slot } => Error::Gap { slot },
            TruncateError::BelowFrontier { committed } => Error::BelowFrontier { committed },
            TruncateError::Truncated { floor } => Error::Truncated { floor },
            TruncateError::SlotOutOfRange { slot, limit } => Error::SlotOutOfRange { slot, limit },
            TruncateError::EntryTooLarge { size, limit } => Error::EntryTooLarge { size, limit },
            TruncateError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::SlotNotFound { slot } => Error::SlotNotFound { slot },
            ReadError::NotCommitted { slot } => Error::NotCommitted { slot },
            ReadError::Truncated { floor } => Error::Truncated { floor },
            ReadError::InvalidOffset { offset } => Error::InvalidOffset { offset },
            ReadError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<SnapshotError> for Error {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::NoSnapshot => Error::NoSnapshot,
            SnapshotError::CorruptedSnapshot { slot, cause } => {
                Error::CorruptedSnapshot { slot, cause }
            }
            SnapshotError::Gap { slot } => Error::Gap { slot },
            SnapshotError::Truncated { floor } => Error::Truncated { floor },
            SnapshotError::SlotOutOfRange { slot, limit } => Error::SlotOutOfRange { slot, limit },
            SnapshotError::InvalidOption(cause) => Error::InvalidOption(cause),
            SnapshotError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<CreateSnapshotError> for Error {
    fn from(error: CreateSnapshotError) -> Self {
        match error {
            CreateSnapshotError::SlotNotFound { slot } => Error::SlotNotFound { slot },
            CreateSnapshotError::NotCommitted { slot } => Error::NotCommitted { slot },
            CreateSnapshotError::Gap { slot } => Error::Gap { slot },
            CreateSnapshotError::Truncated { floor } => Error::Truncated { floor },
            CreateSnapshotError::SlotOutOfRange { slot, limit } => {
                Error::SlotOutOfRange { slot, limit }
            }
            CreateSnapshotError::EntryTooLarge { size, limit } => {
                Error::EntryTooLarge { size, limit }
            }
            CreateSnapshotError::Stream(cause) => Error::Stream(cause),
            CreateSnapshotError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<TransferError> for Error {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Stream(cause) => Error::Stream(cause),
            TransferError::Transfer { what } => Error::Transfer { what },
            TransferError::NoSnapshot => Error::NoSnapshot,
            TransferError::CorruptedSnapshot { slot, cause } => {
                Error::CorruptedSnapshot { slot, cause }
            }
            TransferError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InvalidOption(cause) => Error::InvalidOption(cause),
            OpenError::EntryTooLarge { size, limit } => Error::EntryTooLarge { size, limit },
            OpenError::WrongLabel { found, expected } => Error::WrongLabel { found, expected },
            OpenError::MissingLog { key, dir } => Error::MissingLog { key, dir },
            OpenError::CorruptedRegistry { dir, cause } => Error::CorruptedRegistry { dir, cause },
            OpenError::UnfinishedBackup { dir } => Error::UnfinishedBackup { dir },
            OpenError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<ManagerError> for Error {
    fn from(error: ManagerError) -> Self {
        match error {
            ManagerError::InUse { references } => Error::InUse { references },
            ManagerError::LeakedReferences { logs } => Error::LeakedReferences { logs },
            ManagerError::WrongLabel { found, expected } => Error::WrongLabel { found, expected },
            ManagerError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<AcceptError> for AcceptBatchError {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Storage(error) => Self::Storage(error),
            error => Self::Refused(error),
        }
    }
}

impl From<AcceptBatchError> for Error {
    fn from(error: AcceptBatchError) -> Self {
        match error {
            AcceptBatchError::Refused(error) => error.into(),
            AcceptBatchError::Stopped { accepted, ticket, source } => {
                Error::BatchFailed { accepted, ticket, source: Box::new((*source).into()) }
            }
            AcceptBatchError::Storage(error) => Error::Storage(error),
        }
    }
}

impl From<BackupError> for Error {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::NotEmpty { dir } => Error::NotEmpty { dir },
            BackupError::Open(error) => error.into(),
            BackupError::Storage(error) => Error::Storage(error),
        }
    }
}
