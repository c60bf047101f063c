//! Conversions between the errors of operations, and their messages.

use std::fmt;

use esker_log::{InvalidOption, Trimmed};

use crate::base::corrupted_record::CorruptedRecord;
use crate::base::error::Error;
use crate::base::key_checks::{KeyRefusal, KeyTooLarge, ValueTooLarge};
use crate::base::operation_errors::{
    ApplyError, BackupError, KeyspaceError, OpenError, ReadError, WatchError, WriteError,
};
use crate::base::store_error::StoreError;
use crate::health::BrokenInvariant;
use crate::index::table::IndexError;

/// Converts an error to [`Error`], whose message it has. Its variants are the listed ones, which
/// have the same name there, and `Store`.
macro_rules! operation_error {
    ($name:ident {
        $($variant:ident $({ $($field:ident),* })? $(($payload:ident))?),* $(,)?
    }) => {
        impl From<$name> for Error {
            fn from(error: $name) -> Self {
                match error {
                    $($name::$variant $({ $($field),* })? $(($payload))? => {
                        Error::$variant $({ $($field),* })? $(($payload))?
                    })*
                    $name::Store(error) => Error::Store(error),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Error::from(self.clone()).fmt(f)
            }
        }

        impl std::error::Error for $name {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self {
                    // It displays as the error that it has, so its source is the one below.
                    $name::Store(error) => error.source(),
                    _ => None,
                }
            }
        }

        impl $name {
            /// Returns whether the only cause is a lack of disk space. The store stays usable, and
            /// a write succeeds when there is room.
            pub fn is_no_space(&self) -> bool {
                matches!(self, $name::Store(error) if error.is_no_space())
            }
        }
    };
}

operation_error!(OpenError { InvalidOption(cause), IndexFull, Trimmed(cause) });
operation_error!(ReadError {
    KeyTooLarge { size },
    KeyspaceDropped { name },
    AnotherStore,
    SnapshotExpired,
    Trimmed(cause),
    IndexFull,
});
operation_error!(WriteError {
    KeyTooLarge { size },
    ValueTooLarge { size },
    KeyspaceDropped { name },
    AnotherStore,
    ConditionFailed { condition },
    Contended,
    IndexFull,
    Timeout,
});
operation_error!(KeyspaceError {
    InvalidName { size },
    KeyspaceNotFound { name },
    DefaultKeyspace,
    IndexFull,
});
operation_error!(WatchError { Trimmed(cause), NotDurable { position, durable }, Timeout });
operation_error!(BackupError { NotEmpty { dir }, InvalidOption(cause), Trimmed(cause) });

/// Converts the causes that the store and its log have in common with operations. The listed
/// variants take an error of the log out of [`StoreError::Log`].
macro_rules! from_store {
    ($($name:ident: $($variant:ident),* $(| $unit:ident)?;)*) => {$(
        impl From<StoreError> for $name {
            fn from(error: StoreError) -> Self {
                Self::Store(error)
            }
        }

        impl From<BrokenInvariant> for $name {
            fn from(broken: BrokenInvariant) -> Self {
                Self::Store(broken.into())
            }
        }

        impl From<CorruptedRecord> for $name {
            fn from(record: CorruptedRecord) -> Self {
                Self::Store(record.into())
            }
        }

        impl From<esker_log::Error> for $name {
            fn from(cause: esker_log::Error) -> Self {
                match cause {
                    $(esker_log::Error::$variant(cause) => Self::$variant(cause),)*
                    $(esker_log::Error::$unit => Self::$unit,)?
                    cause => Self::Store(cause.into()),
                }
            }
        }
    )*};
}

from_store! {
    OpenError: InvalidOption, Trimmed;
    ApplyError: Trimmed;
    ReadError: Trimmed;
    WriteError: | Timeout;
    KeyspaceError: ;
    WatchError: Trimmed | Timeout;
    BackupError: InvalidOption, Trimmed;
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Converts the errors of the operations of a log as [`esker_log::Error`].
macro_rules! from_log_operation {
    ($($operation:ident: $($name:ident),*;)*) => {$($(
        impl From<esker_log::$operation> for $name {
            fn from(cause: esker_log::$operation) -> Self {
                esker_log::Error::from(cause).into()
            }
        }
    )*)*};
}

from_log_operation! {
    LogError: StoreError, BackupError, KeyspaceError;
    AppendError: StoreError, KeyspaceError;
    WaitError: WriteError;
    OpenError: ApplyError, BackupError, Error, OpenError, ReadError, WatchError;
    ReadError: ApplyError, BackupError, ReadError, StoreError, WatchError;
    RetentionError: BackupError;
    SnapshotError: StoreError;
}

/// Converts a payload to the variant of its name.
macro_rules! from_payload {
    ($($payload:ident: $($name:ident),*;)*) => {$($(
        impl From<$payload> for $name {
            fn from(cause: $payload) -> Self {
                Self::$payload(cause)
            }
        }
    )*)*};
}

from_payload! {
    InvalidOption: OpenError, BackupError;
    Trimmed: ApplyError, BackupError, OpenError, WatchError;
}

macro_rules! from_apply {
    ($($name:ident),*) => {$(
        impl From<ApplyError> for $name {
            fn from(error: ApplyError) -> Self {
                match error {
                    ApplyError::IndexFull => Self::IndexFull,
                    ApplyError::Trimmed(cause) => Self::Trimmed(cause),
                    ApplyError::Store(error) => Self::Store(error),
                }
            }
        }
    )*};
}

from_apply!(OpenError, ReadError);

impl From<IndexError> for ApplyError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::ArenaFull => Self::IndexFull,
            IndexError::Broken(broken) => broken.into(),
        }
    }
}

macro_rules! from_key_refusal {
    ($($name:ident),*) => {$(
        impl From<KeyRefusal> for $name {
            fn from(refusal: KeyRefusal) -> Self {
                match refusal {
                    KeyRefusal::TooLarge(refusal) => refusal.into(),
                    KeyRefusal::KeyspaceDropped { name } => Self::KeyspaceDropped { name },
                    KeyRefusal::Store(error) => Self::Store(error),
                }
            }
        }
    )*};
}

from_key_refusal!(ReadError, WriteError);

macro_rules! from_too_large {
    ($($refusal:ident: $($name:ident),*;)*) => {$($(
        impl From<$refusal> for $name {
            fn from($refusal { size }: $refusal) -> Self {
                Self::$refusal { size }
            }
        }
    )*)*};
}

from_too_large! {
    KeyTooLarge: ReadError, WriteError;
    ValueTooLarge: WriteError;
}
