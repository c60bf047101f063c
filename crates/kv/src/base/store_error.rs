//! The error that every operation on a store can meet.

use std::fmt;

use esker_disk::process;

use crate::base::error::Error;
use crate::health::{BrokenInvariant, Refusal};

/// The error that every operation on a store can meet: the store is closed, was opened by a parent
/// process, or has failed, or its log has.
#[derive(Debug, Clone)]
pub enum StoreError {
    /// The store was closed. Stop using it.
    Closed,
    /// `fork` made this process of one that used Esker, and nothing was done: see
    /// [`esker_log::Error::Forked`].
    Forked,
    /// An invariant of the store does not hold, which is a bug. The store refuses every later call
    /// with this error, cleans nothing and writes no checkpoint. A write that returned it may or
    /// may not survive. Report it, and open the store again: that builds the index from the log.
    Internal {
        /// The invariant, as the sentence that should be true.
        invariant: &'static str,
    },
    /// The underlying log failed. After [`esker_log::Error::Poisoned`] the store accepts nothing
    /// until it is reopened. After [`esker_log::Error::NoSpace`] it stays usable.
    Log(esker_log::Error),
}

impl StoreError {
    /// Returns whether the only cause is a lack of disk space. The store stays usable, and a write
    /// succeeds when there is room.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Log(cause) if cause.is_no_space())
    }

    /// Whether the store refuses every call from here on, which its handles report.
    pub(crate) fn ends_store(&self) -> bool {
        matches!(self, Self::Closed | Self::Internal { .. })
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(self.clone()).fmt(f)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // This one displays as its cause does, so its source is the one below.
            Self::Log(cause) => cause.source(),
            Self::Closed | Self::Forked | Self::Internal { .. } => None,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Error::Closed,
            StoreError::Forked => Error::Forked,
            StoreError::Internal { invariant } => Error::Internal { invariant },
            StoreError::Log(cause) => Error::Log(cause),
        }
    }
}

impl From<esker_log::Error> for StoreError {
    fn from(cause: esker_log::Error) -> Self {
        match cause {
            esker_log::Error::Closed => Self::Closed,
            esker_log::Error::Forked => Self::Forked,
            cause => Self::Log(cause),
        }
    }
}

impl From<BrokenInvariant> for StoreError {
    fn from(BrokenInvariant(invariant): BrokenInvariant) -> Self {
        Self::Internal { invariant }
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Closed => Self::Closed,
            Refusal::Failed(broken) => broken.into(),
        }
    }
}

/// Refuses a call in a child that `fork` made.
#[inline]
pub(crate) fn refuse_if_forked() -> Result<(), StoreError> {
    if process::is_forked() { Err(StoreError::Forked) } else { Ok(()) }
}
