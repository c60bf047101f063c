//! Conversions between the errors of operations and [`Error`], and their messages.

use std::fmt;

use crate::base::error::Error;
use crate::base::log_error::LogError;
use crate::base::operation_errors::{AppendError, WaitError};

/// Converts the error of an operation to [`Error`], whose message it has.
macro_rules! operation_error {
    ($name:ident {
        $($variant:ident $({ $($field:ident),* })? $(($payload:ident))?),*
        $(; sources { $($pattern:pat => $source:expr),* })?
    }) => {
        impl From<$name> for Error {
            fn from(error: $name) -> Self {
                match error {
                    $($name::$variant $({ $($field),* })? $(($payload))? => {
                        Error::$variant $({ $($field),* })? $(($payload))?
                    })*
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

/// As [`operation_error`], and narrows an [`Error`] to that of the operation. Each group of variants
/// that cannot occur follows the reason, and becomes [`LogError::Internal`].
macro_rules! narrowed_error {
    ($name:ident {
        $($variant:ident $({ $($field:ident),* })? $(($payload:ident))?),*
        $(; sources { $($sources:tt)* })?
    } never {
        $($invariant:literal: $($never:ident)|*;)*
    }) => {
        operation_error!($name {
            $($variant $({ $($field),* })? $(($payload))?),*
            $(; sources { $($sources)* })?
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
    "an append does not refuse a second operation of its kind": Busy;
});
operation_error!(WaitError { Timeout });
