//! Errors as openraft takes them, and the reason why a node stops. openraft stops the node at any
//! error of a store.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use esker_consensus::{Error, StorageError};
use tokio::sync::Notify;

/// A broken invariant: a state that only a mistake in the code leads to. The component that finds
/// one fails for good, and never answers as if nothing had happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Internal {
    /// The sentence that does not hold.
    pub(crate) invariant: &'static str,
}

impl Internal {
    /// Creates the error. It fails nothing by itself: its way ends at
    /// [`TerminalState::fail_internal`], which fails the node.
    pub(crate) const fn new(invariant: &'static str) -> Self {
        Self { invariant }
    }
}

impl fmt::Display for Internal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "internal error: this does not hold: {}", self.invariant)
    }
}

impl std::error::Error for Internal {}

impl From<Internal> for io::Error {
    fn from(internal: Internal) -> Self {
        Self::other(internal)
    }
}

/// The reason why a node stops by itself.
#[derive(Debug, Clone)]
pub(crate) enum StopCause {
    /// The node's data is of an earlier time of its cluster.
    OtherData(String),
    /// The node's log failed, or one of its tasks.
    Stopped(String),
    /// An invariant does not hold.
    Internal(Internal),
}

/// The terminal state of a node: unset while it runs. Clones are handles of one.
#[derive(Debug, Clone, Default)]
pub(crate) struct TerminalState(Arc<Terminal>);

#[derive(Debug, Default)]
struct Terminal {
    cause: OnceLock<StopCause>,
    is_set: Notify,
}

impl TerminalState {
    /// Fails the node. The first cause stays. Returns whether this is the first.
    pub(crate) fn fail(&self, cause: StopCause) -> bool {
        let is_first = self.0.cause.set(cause).is_ok();
        if is_first {
            self.0.is_set.notify_one();
        }
        is_first
    }

    /// Fails the node because an invariant does not hold, and logs it.
    ///
    /// # Panics
    /// In a debug build, when the failure is recorded.
    #[track_caller]
    pub(crate) fn fail_internal(&self, internal: Internal) -> Internal {
        let invariant = internal.invariant;
        if self.fail(StopCause::Internal(internal)) {
            tracing::error!(invariant, "an invariant does not hold: the node stops");
        }
        debug_assert!(false, "broken invariant: {invariant}");
        internal
    }

    /// The cause, if the node has failed.
    pub(crate) fn cause(&self) -> Option<&StopCause> {
        self.0.cause.get()
    }

    /// The broken invariant, if the node has failed because of one.
    pub(crate) fn internal(&self) -> Option<Internal> {
        match self.cause() {
            Some(StopCause::Internal(internal)) => Some(*internal),
            _ => None,
        }
    }

    /// Waits until the node has failed. One task at a time may call this.
    pub(crate) async fn wait(&self) {
        while self.0.cause.get().is_none() {
            self.0.is_set.notified().await;
        }
    }
}

/// Converts an error of the log, with its causes in the message.
pub(crate) fn to_io_error(error: impl Into<Error>) -> io::Error {
    let error = error.into();
    let kind = match &error {
        Error::Storage(StorageError::Log(esker_log::Error::NoSpace { .. })) => {
            io::ErrorKind::StorageFull
        }
        Error::Storage(StorageError::Log(esker_log::Error::Timeout)) => io::ErrorKind::TimedOut,
        Error::BufferFull { .. } => io::ErrorKind::OutOfMemory,
        Error::EntryTooLarge { .. } => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// The cause for which the log accepts nothing any more, if the error says that. The log stays so
/// until it is opened again.
pub(crate) fn poison_cause(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let error = inner.map_or(error, |inner| inner as &(dyn std::error::Error + 'static));
    match error.downcast_ref::<Error>() {
        Some(Error::Storage(StorageError::Log(esker_log::Error::Poisoned(cause)))) => {
            Some(cause.to_string())
        }
        Some(Error::Storage(error @ StorageError::Internal { .. })) => Some(error.to_string()),
        _ => None,
    }
}

/// The broken invariant that an error carries, if it does.
pub(crate) fn internal_cause(error: &io::Error) -> Option<Internal> {
    error.get_ref()?.downcast_ref().copied()
}

/// The error for bytes or numbers that this crate did not write, or that a peer may not send.
pub(crate) fn invalid_data(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
