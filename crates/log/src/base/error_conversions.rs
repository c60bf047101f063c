//! Conversions between the errors of operations and [`Error`], and their messages.

use std::fmt;

use crate::base::error::{Error, with_causes};
use crate::base::log_error::LogError;
use crate::base::operation_errors::{
    AppendError, BackupError, ConsumerError, OpenError, ReadError, RepairError, RetentionError,
    SnapshotError, WaitError,
};

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Io(cause) => Error::Io(cause),
            LogError::Poisoned(cause) => Error::Poisoned(cause),
            LogError::Closed => Error::Closed,
            LogError::Forked => Error::Forked,
            LogError::Stopped => Error::Stopped,
            LogError::NoThread(cause) => Error::NoThread(cause),
            LogError::Internal { invariant } => Error::Internal { invariant },
        }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(self.clone()).fmt(f)
    }
}

impl LogError {
    /// Reports an error where, by `invariant`, it cannot occur. Panics in debug builds.
    #[cold]
    pub(crate) fn internal(invariant: &'static str, error: &Error) -> Self {
        tracing::error!(error = with_causes(error), invariant, "an error that cannot occur here");
        debug_assert!(false, "this does not hold: {invariant}; the error is {error:?}");
        Self::Internal { invariant }
    }

    /// Reports a broken invariant outside of an open log. Panics in debug builds.
    #[cold]
    pub(crate) fn broken(invariant: &'static str) -> Self {
        tracing::error!(invariant, "an invariant of the log does not hold");
        debug_assert!(false, "this does not hold: {invariant}");
        Self::Internal { invariant }
    }

    /// Narrows an error where, by `invariant`, it is one that every operation can meet.
    pub(crate) fn narrow(error: Error, invariant: &'static str) -> Self {
        match error {
            Error::Io(cause) => Self::Io(cause),
            Error::Poisoned(cause) => Self::Poisoned(cause),
            Error::Closed => Self::Closed,
            Error::Forked => Self::Forked,
            Error::Stopped => Self::Stopped,
            Error::NoThread(cause) => Self::NoThread(cause),
            Error::Internal { invariant } => Self::Internal { invariant },
            error @ (Error::InvalidOption(_)
            | Error::HugePages(_)
            | Error::Locked { .. }
            | Error::NotALog { .. }
            | Error::NotThisBackup { .. }
            | Error::UnsupportedVersion { .. }
            | Error::ForeignFile { .. }
            | Error::WrongComponent { .. }
            | Error::TooLarge { .. }
            | Error::BatchTooLarge { .. }
            | Error::ContentTooLarge { .. }
            | Error::Sequence { .. }
            | Error::InvalidConsumer { .. }
            | Error::TooManyConsumers { .. }
            | Error::OffsetChanged { .. }
            | Error::Conflict { .. }
            | Error::NoSpace { .. }
            | Error::Full
            | Error::Busy { .. }
            | Error::Timeout
            | Error::Trimmed(_)
            | Error::Quarantined(_)
            | Error::Corrupted(_)
            | Error::NotFound { .. }
            | Error::InvalidPosition { .. }) => Self::internal(invariant, &error),
        }
    }
}

/// Converts the error of an operation to [`Error`], whose message it has.
macro_rules! operation_error {
    ($name:ident {
        $($variant:ident $({ $($field:ident),* })? $(($payload:ident))?),*
        $(; sources { $($pattern:pat => $source:expr),* })?
        $(; nests $nested:ident)?
    }) => {
        impl From<$name> for Error {
            fn from(error: $name) -> Self {
                match error {
                    $($name::$variant $({ $($field),* })? $(($payload))? => {
                        Error::$variant $({ $($field),* })? $(($payload))?
                    })*
                    $($name::$nested(error) => error.into(),)?
                    $name::Log(error) => error.into(),
                }
            }
        }

        impl From<LogError> for $name {
            fn from(error: LogError) -> Self {
                Self::Log(error)
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
                    Self::Log(error) => error.source(),
                    $(Self::$nested(error) => error.source(),)?
                    $($($pattern => $source,)*)?
                    #[allow(unreachable_patterns)]
                    _ => None,
                }
            }
        }

        impl $name {
            /// Whether the only cause is a lack of disk space; as [`Error::is_no_space`].
            pub fn is_no_space(&self) -> bool {
                Error::from(self.clone()).is_no_space()
            }

            /// Whether the same call may succeed later; as [`Error::is_retryable`].
            pub fn is_retryable(&self) -> bool {
                Error::from(self.clone()).is_retryable()
            }
        }
    };
}

/// As [`operation_error`], and narrows an [`Error`] to that of the operation. Each group of
/// variants that cannot occur follows the reason, and becomes [`LogError::Internal`].
macro_rules! narrowed_error {
    ($name:ident {
        $($variant:ident $({ $($field:ident),* })? $(($payload:ident))?),*
        $(; sources { $($sources:tt)* })?
        $(; nests $nested:ident($inner:ident) { $($from:ident),* })?
    } never {
        $($invariant:literal: $($never:ident)|*;)*
    }) => {
        operation_error!($name {
            $($variant $({ $($field),* })? $(($payload))?),*
            $(; sources { $($sources)* })?
            $(; nests $nested)?
        });

        impl $name {
            /// Narrows an error of this operation.
            // A group may have one variant.
            #[allow(unused_parens)]
            pub(crate) fn narrow(error: Error) -> Self {
                match error {
                    $(Error::$variant $({ $($field),* })? $(($payload))? => {
                        Self::$variant $({ $($field),* })? $(($payload))?
                    })*
                    Error::Io(cause) => Self::Log(LogError::Io(cause)),
                    Error::Poisoned(cause) => Self::Log(LogError::Poisoned(cause)),
                    Error::Closed => Self::Log(LogError::Closed),
                    Error::Forked => Self::Log(LogError::Forked),
                    Error::Stopped => Self::Log(LogError::Stopped),
                    Error::NoThread(cause) => Self::Log(LogError::NoThread(cause)),
                    Error::Internal { invariant } => Self::Log(LogError::Internal { invariant }),
                    $(error @ ($(Error::$from { .. })|*) => Self::$nested($inner::narrow(error)),)?
                    $(error @ ($(Error::$never { .. })|*) => {
                        Self::Log(LogError::internal($invariant, &error))
                    })*
                }
            }
        }
    };
}

narrowed_error!(AppendError {
    TooLarge { size, limit },
    BatchTooLarge { size, limit },
    Sequence { seq, prev, expected },
    Conflict { prev, last },
    NoSpace { dir, wanted, durable, cause },
    Full,
    Timeout;
    sources { Self::NoSpace { cause, .. } => Some(cause) }
} never {
    "an append opens no log":
        InvalidOption | HugePages | Locked | NotALog | NotThisBackup | WrongComponent;
    "an append reads no file":
        UnsupportedVersion | ForeignFile | Corrupted | Quarantined | Trimmed | InvalidPosition;
    "an append drops only records that are durable": NotFound;
    "an append changes no offset of a consumer":
        InvalidConsumer | TooManyConsumers | OffsetChanged;
    "an append writes no snapshot, and many can append at a time": ContentTooLarge | Busy;
});
operation_error!(WaitError { Timeout });
narrowed_error!(OpenError {
    InvalidOption(cause),
    HugePages(cause),
    Locked { dir, pid },
    NotALog { dir, found },
    UnsupportedVersion { file, version },
    ForeignFile { file },
    WrongComponent { dir, found, expected },
    NoSpace { dir, wanted, durable, cause },
    Corrupted(corruption);
    sources {
        Self::HugePages(cause) => std::error::Error::source(cause),
        Self::NoSpace { cause, .. } => Some(cause)
    }
} never {
    "an opening appends nothing": TooLarge | BatchTooLarge | Sequence | Conflict | Full;
    "an opening reads no record by its number": NotFound | InvalidPosition | Trimmed | Quarantined;
    "an opening does not use the offsets of consumers":
        InvalidConsumer | TooManyConsumers | OffsetChanged;
    "an opening writes no snapshot and no backup": ContentTooLarge | NotThisBackup | Busy;
    "an opening has no deadline": Timeout;
});
narrowed_error!(SnapshotError {
    NotFound { seq },
    ContentTooLarge { size, limit },
    Busy { what },
    NoSpace { dir, wanted, durable, cause },
    Corrupted(corruption);
    sources { Self::NoSpace { cause, .. } => Some(cause) }
} never {
    "a snapshot opens no log":
        InvalidOption | HugePages | Locked | NotALog | NotThisBackup | WrongComponent
        | UnsupportedVersion | ForeignFile;
    "a snapshot appends nothing": TooLarge | BatchTooLarge | Sequence | Conflict | Full;
    "a snapshot has no record": InvalidPosition | Trimmed | Quarantined;
    "a snapshot does not use the offsets of consumers":
        InvalidConsumer | TooManyConsumers | OffsetChanged;
    "a snapshot has no deadline": Timeout;
});
narrowed_error!(ConsumerError {
    InvalidConsumer { bytes, limit },
    TooManyConsumers { limit },
    OffsetChanged { name, found },
    Busy { what },
    UnsupportedVersion { file, version },
    ForeignFile { file },
    Corrupted(corruption)
} never {
    "the offsets are read without the log":
        InvalidOption | HugePages | Locked | NotALog | NotThisBackup | WrongComponent | NotFound
        | InvalidPosition | Trimmed | Quarantined;
    "the offsets are no records": TooLarge | BatchTooLarge | Sequence | Conflict | Full | NoSpace;
    "the offsets are no snapshot": ContentTooLarge;
    "changing an offset has no deadline": Timeout;
});
narrowed_error!(BackupError {
    NotThisBackup { dir, found },
    WrongComponent { dir, found, expected },
    Locked { dir, pid },
    NotALog { dir, found },
    UnsupportedVersion { file, version },
    ForeignFile { file },
    Busy { what },
    Trimmed(trimmed),
    Quarantined(range),
    Corrupted(corruption)
} never {
    "the options of a reader were checked when it was opened": InvalidOption | HugePages;
    "a backup appends nothing": TooLarge | BatchTooLarge | Sequence | Conflict | Full | NoSpace;
    "a backup reads no record by its number": NotFound | InvalidPosition;
    "a backup sets all offsets of consumers": InvalidConsumer | TooManyConsumers | OffsetChanged;
    "a snapshot that is copied is no larger than it was": ContentTooLarge;
    "a backup has no deadline": Timeout;
});
narrowed_error!(RetentionError {
    NotFound { seq },
    InvalidOption(cause),
    NoSpace { dir, wanted, durable, cause };
    sources { Self::NoSpace { cause, .. } => Some(cause) }
} never {
    "dropping records opens no log":
        HugePages | Locked | NotALog | NotThisBackup | WrongComponent;
    "dropping records reads no file":
        UnsupportedVersion | ForeignFile | Corrupted | Quarantined | Trimmed | InvalidPosition;
    "dropping records appends nothing":
        TooLarge | BatchTooLarge | Sequence | Conflict | Full | ContentTooLarge;
    "dropping records does not use the offsets of consumers":
        InvalidConsumer | TooManyConsumers | OffsetChanged;
    "dropping records waits for others, without a deadline": Busy | Timeout;
});
narrowed_error!(RepairError {
    Locked { dir, pid },
    NotALog { dir, found },
    UnsupportedVersion { file, version },
    ForeignFile { file },
    Corrupted(corruption)
} never {
    "a repair uses no option that can be out of its range": InvalidOption | HugePages;
    "a repair does not ask for the component": WrongComponent;
    "a repair appends nothing":
        TooLarge | BatchTooLarge | Sequence | Conflict | Full | NoSpace | ContentTooLarge;
    "a repair reads no record by its number": NotFound | InvalidPosition | Trimmed | Quarantined;
    "a repair does not use the offsets of consumers":
        InvalidConsumer | TooManyConsumers | OffsetChanged;
    "a repair is no backup": NotThisBackup;
    "a repair has no deadline, and waits for no other": Busy | Timeout;
});
narrowed_error!(ReadError {
    NotFound { seq },
    InvalidPosition { position },
    Trimmed(trimmed),
    Quarantined(range),
    Corrupted(corruption),
    Timeout;
    nests Poll(OpenError) { NotALog, UnsupportedVersion, ForeignFile }
} never {
    "a read opens nothing for writing":
        InvalidOption | HugePages | Locked | NotThisBackup | WrongComponent | NoSpace;
    "a read appends nothing":
        TooLarge | BatchTooLarge | Sequence | Conflict | Full | ContentTooLarge;
    "a read does not use the offsets of consumers":
        InvalidConsumer | TooManyConsumers | OffsetChanged;
    "many can read at a time": Busy;
});
