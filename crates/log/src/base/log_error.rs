//! The error that every operation on a log can meet.

use std::sync::Arc;

use esker_disk::{Refusal, process};

/// The error that every operation on a log can meet: the log is closed, was opened by a parent
/// process, or has failed, or the disk or the system has. The error of an operation has it beside
/// what can happen only there.
#[derive(Debug, Clone)]
pub enum LogError {
    /// An operation of the disk failed. For a failed write or sync this is the first report: the
    /// log is poisoned from then on. The source names the operation, the file and the error of the
    /// system.
    Io(esker_disk::Error),
    /// An earlier write or sync failed, with this cause. The log accepts nothing more; durable
    /// records stay readable. Reopen the log to continue.
    Poisoned(esker_disk::Error),
    /// The log was closed.
    Closed,
    /// `fork` made this process of one that used Esker; see
    /// [`Error::Forked`](crate::Error::Forked).
    Forked,
    /// The engine stopped before the record became durable. Reopening the log shows whether it did.
    Stopped,
    /// The system started no thread. Nothing was done, and the call can be repeated.
    NoThread(Arc<std::io::Error>),
    /// An invariant of the log does not hold, which is a bug; see
    /// [`Error::Internal`](crate::Error::Internal).
    Internal {
        /// The invariant, as the sentence that should be true.
        invariant: &'static str,
    },
}

impl LogError {
    /// The system started no thread, or `fork` made this process.
    pub(crate) fn no_thread(error: std::io::Error) -> Self {
        match error.get_ref().and_then(|refusal| refusal.downcast_ref()) {
            Some(Refusal::Forked) => Self::Forked,
            _ => Self::NoThread(Arc::new(error)),
        }
    }

    /// Whether the only cause is a lack of disk space.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io(cause) if cause.is_no_space())
    }

    /// Whether the same call may succeed later; as
    /// [`Error::is_retryable`](crate::Error::is_retryable).
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NoThread(_))
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // This one displays as its cause does, so its source is the one below.
            Self::Io(cause) => cause.source(),
            Self::Poisoned(cause) => Some(cause),
            Self::NoThread(cause) => Some(&**cause),
            Self::Closed | Self::Forked | Self::Stopped | Self::Internal { .. } => None,
        }
    }
}

impl From<esker_disk::Error> for LogError {
    fn from(cause: esker_disk::Error) -> Self {
        match cause.refusal() {
            Some(Refusal::Forked) => Self::Forked,
            _ => Self::Io(cause),
        }
    }
}

/// Refuses a call in a child that `fork` made.
#[inline]
pub(crate) fn refuse_if_forked() -> Result<(), LogError> {
    if process::is_forked() { Err(LogError::Forked) } else { Ok(()) }
}
