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

/// Converts the errors of operations whose variants [`Error`] has under the same names.
macro_rules! into_error {
    ($($name:ident {
        $($variant:ident $({ $($field:ident),* })? $(($payload:ident))?,)*
    })*) => { $(
        impl From<$name> for Error {
            fn from(error: $name) -> Self {
                match error {
                    $($name::$variant $({ $($field),* })? $(($payload))? => {
                        Error::$variant $({ $($field),* })? $(($payload))?
                    })*
                    $name::Storage(error) => Error::Storage(error),
                }
            }
        }
    )* };
}

into_error! {
    PromiseError { StaleBallot { promised }, }
    AcceptError {
        StaleBallot { promised },
        AlreadyCommitted { entry },
        AnotherValue { slot, ballot },
        Truncated { floor },
        SlotOutOfRange { slot, limit },
        BufferFull { used, size },
        EntryTooLarge { size, limit },
    }
    LearnError {
        AlreadyCommitted { entry },
        Truncated { floor },
        SlotOutOfRange { slot, limit },
        EntryTooLarge { size, limit },
    }
    CommitError {
        SlotNotFound { slot },
        BallotMismatch { slot, accepted },
        Truncated { floor },
        Gap { slot },
    }
    TruncateError {
        Gap { slot },
        BelowFrontier { committed },
        Truncated { floor },
        SlotOutOfRange { slot, limit },
        EntryTooLarge { size, limit },
    }
    ReadError {
        SlotNotFound { slot },
        NotCommitted { slot },
        Truncated { floor },
        InvalidOffset { offset },
    }
    SnapshotError {
        NoSnapshot,
        CorruptedSnapshot { slot, cause },
        Gap { slot },
        Truncated { floor },
        SlotOutOfRange { slot, limit },
        InvalidOption(cause),
    }
    CreateSnapshotError {
        SlotNotFound { slot },
        NotCommitted { slot },
        Gap { slot },
        Truncated { floor },
        SlotOutOfRange { slot, limit },
        EntryTooLarge { size, limit },
        Stream(cause),
    }
    TransferError {
        Stream(cause),
        Transfer { what },
        NoSnapshot,
        CorruptedSnapshot { slot, cause },
    }
    OpenError {
        InvalidOption(cause),
        EntryTooLarge { size, limit },
        WrongLabel { found, expected },
        MissingLog { key, dir },
        CorruptedRegistry { dir, cause },
        UnfinishedBackup { dir },
    }
    ManagerError {
        InUse { references },
        LeakedReferences { logs },
        WrongLabel { found, expected },
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
