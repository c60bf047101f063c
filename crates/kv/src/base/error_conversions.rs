//! Conversions between the errors of operations, and their messages.

use std::fmt;

use esker_log::{InvalidOption, Trimmed};

use crate::base::corrupted_record::CorruptedRecord;
use crate::base::error::Error;
use crate::base::key_checks::{KeyRefusal, KeyTooLarge, ValueTooLarge};
use crate::base::operation_errors::{
    BackupError, BatchError, CheckError, CompactError, KeyspaceError, OpenError, ReadError,
    RefreshError, SnapshotError, WaitError, WatchError, WriteBatchError, WriteError,
};
use crate::base::store_error::StoreError;
use crate::health::BrokenInvariant;
use crate::index::table::IndexError;

/// Converts an error to [`Error`], whose message it has. The variants after `;` have an error of
/// their own.
macro_rules! operation_error {
    ($name:ident {
        $($variant:ident => $target:ident $({ $($field:ident),* })? $(($payload:ident))?),*
        $(; $nested:ident)?
    }) => {
        impl From<$name> for Error {
            fn from(error: $name) -> Self {
                match error {
                    $($name::$variant $({ $($field),* })? $(($payload))? => {
                        Error::$target $({ $($field),* })? $(($payload))?
                    })*
                    $($name::$nested(error) => error.into(),)?
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
                // It displays as the error that it has, so its source is the one below.
                $(if let $name::$nested(error) = self {
                    return error.source();
                })?
                None
            }
        }

        $(impl $name {
            /// Returns whether the only cause is a lack of disk space. The store stays usable, and
            /// a write succeeds when there is room.
            pub fn is_no_space(&self) -> bool {
                matches!(self, $name::$nested(error) if error.is_no_space())
            }
        })?
    };
}

operation_error!(OpenError {
    InvalidOption => InvalidOption(cause),
    CorruptedRecord => CorruptedRecord(cause),
    IndexFull => IndexFull,
    Trimmed => Trimmed(cause);
    Store
});
operation_error!(RefreshError {
    CorruptedRecord => CorruptedRecord(cause),
    IndexFull => IndexFull,
    Trimmed => Trimmed(cause);
    Store
});
operation_error!(CheckError {
    CorruptedRecord => CorruptedRecord(cause),
    Trimmed => Trimmed(cause);
    Store
});
operation_error!(ReadError {
    KeyTooLarge => KeyTooLarge { size },
    KeyspaceDropped => KeyspaceDropped { name },
    Quarantined => Quarantined(range),
    CorruptedRecord => CorruptedRecord(cause),
    IndexFull => IndexFull,
    Trimmed => Trimmed(cause);
    Store
});
operation_error!(SnapshotError {
    Expired => SnapshotExpired,
    AnotherStore => AnotherStore;
    Read
});
operation_error!(WriteError {
    KeyTooLarge => KeyTooLarge { size },
    ValueTooLarge => ValueTooLarge { size },
    KeyspaceDropped => KeyspaceDropped { name },
    IndexFull => IndexFull;
    Store
});
operation_error!(BatchError {
    KeyTooLarge => KeyTooLarge { size },
    ValueTooLarge => ValueTooLarge { size },
    AnotherStore => AnotherStore
});
operation_error!(WriteBatchError {
    ConditionFailed => ConditionFailed { condition },
    Contended => Contended,
    AnotherStore => AnotherStore,
    KeyspaceDropped => KeyspaceDropped { name },
    IndexFull => IndexFull,
    Quarantined => Quarantined(range),
    CorruptedRecord => CorruptedRecord(cause);
    Store
});
operation_error!(KeyspaceError {
    InvalidName => InvalidName { size },
    NotFound => KeyspaceNotFound { name },
    DefaultKeyspace => DefaultKeyspace,
    Quarantined => Quarantined(range),
    CorruptedRecord => CorruptedRecord(cause),
    IndexFull => IndexFull;
    Store
});
operation_error!(WatchError {
    Trimmed => Trimmed(cause),
    NotDurable => NotDurable { position, durable },
    Quarantined => Quarantined(range),
    CorruptedRecord => CorruptedRecord(cause),
    Timeout => Timeout;
    Store
});
operation_error!(WaitError {
    Timeout => Timeout;
    Store
});
operation_error!(BackupError {
    NotEmpty => NotEmpty { dir },
    InvalidOption => InvalidOption(cause),
    Quarantined => Quarantined(range),
    Trimmed => Trimmed(cause);
    Store
});
operation_error!(CompactError {
    Quarantined => Quarantined(range),
    CorruptedRecord => CorruptedRecord(cause);
    Store
});

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
    RefreshError: Trimmed;
    CheckError: Trimmed;
    ReadError: Quarantined, Trimmed;
    WriteError: ;
    WriteBatchError: ;
    KeyspaceError: ;
    WatchError: Quarantined, Trimmed | Timeout;
    WaitError: | Timeout;
    BackupError: InvalidOption, Quarantined, Trimmed;
    CompactError: Quarantined;
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
    AppendError: StoreError, CompactError, KeyspaceError;
    WaitError: WaitError;
    OpenError: BackupError, CheckError, Error, OpenError, RefreshError, WatchError;
    ReadError: BackupError, CheckError, RefreshError, StoreError, WatchError;
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
    CorruptedRecord: OpenError, RefreshError, CheckError, ReadError, WriteBatchError, KeyspaceError,
        WatchError, CompactError;
    InvalidOption: OpenError, BackupError;
    Trimmed: OpenError, RefreshError, WatchError, BackupError;
}

impl From<ReadError> for SnapshotError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<StoreError> for SnapshotError {
    fn from(error: StoreError) -> Self {
        Self::Read(error.into())
    }
}

impl From<BrokenInvariant> for SnapshotError {
    fn from(broken: BrokenInvariant) -> Self {
        Self::Read(broken.into())
    }
}

impl From<RefreshError> for OpenError {
    fn from(error: RefreshError) -> Self {
        match error {
            RefreshError::CorruptedRecord(cause) => Self::CorruptedRecord(cause),
            RefreshError::IndexFull => Self::IndexFull,
            RefreshError::Trimmed(cause) => Self::Trimmed(cause),
            RefreshError::Store(error) => Self::Store(error),
        }
    }
}

impl From<RefreshError> for ReadError {
    fn from(error: RefreshError) -> Self {
        match error {
            RefreshError::CorruptedRecord(cause) => Self::CorruptedRecord(cause),
            RefreshError::IndexFull => Self::IndexFull,
            RefreshError::Trimmed(cause) => Self::Trimmed(cause),
            RefreshError::Store(error) => Self::Store(error),
        }
    }
}

impl From<IndexError> for RefreshError {
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
    KeyTooLarge: ReadError, WriteError, BatchError;
    ValueTooLarge: WriteError, BatchError;
}
