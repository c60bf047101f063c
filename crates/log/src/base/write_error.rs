//! The error of a write of several records.

use std::fmt;

use crate::base::error::Error;
use crate::base::log_error::LogError;
use crate::base::operation_errors::AppendError;

/// Why a write failed, and how many of its records were accepted before that. Converts to
/// [`Error`], so `?` works.
///
/// Accepted records become durable as those of any write do; [`Log::barrier`](crate::Log::barrier)
/// waits for them. To continue, write the others.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WriteError {
    /// The reason.
    pub error: AppendError,
    /// The number of records accepted, which are the first ones. 0 for an atomic write.
    pub accepted: usize,
}

/// Displays as the reason does, after the number of records where there are any.
impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.accepted {
            0 => {}
            1 => f.write_str("1 record was accepted; then: ")?,
            accepted => write!(f, "{accepted} records were accepted; then: ")?,
        }
        self.error.fmt(f)
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        error.error.into()
    }
}

/// Loses how many records were accepted.
impl From<WriteError> for AppendError {
    fn from(error: WriteError) -> Self {
        error.error
    }
}

/// Nothing was accepted.
impl From<AppendError> for WriteError {
    fn from(error: AppendError) -> Self {
        Self { error, accepted: 0 }
    }
}

/// Nothing was accepted.
impl From<LogError> for WriteError {
    fn from(error: LogError) -> Self {
        AppendError::from(error).into()
    }
}
