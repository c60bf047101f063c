//! Errors as openraft takes them. It stops the node at any of them.

use std::io;

use esker_consensus::Error;

/// Why a node stops by itself.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// Its data is of an earlier time of its cluster.
    OtherData(String),
    /// Its log failed, or one of its tasks.
    Stopped(String),
}

/// The error of the log, with its causes in the message.
pub(crate) fn failed(error: Error) -> io::Error {
    let kind = match &error {
        Error::Log(esker_log::Error::NoSpace { .. }) => io::ErrorKind::StorageFull,
        Error::Log(esker_log::Error::Timeout) => io::ErrorKind::TimedOut,
        Error::BufferFull { .. } => io::ErrorKind::OutOfMemory,
        Error::EntryTooLarge { .. } => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// Why the log takes nothing any more, if that is what the error says. It stays so until the log is
/// opened again.
pub(crate) fn poisoned(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let error = inner.map_or(error, |inner| inner as &(dyn std::error::Error + 'static));
    match error.downcast_ref::<Error>() {
        Some(Error::Log(esker_log::Error::Poisoned(cause))) => Some(cause.to_string()),
        _ => None,
    }
}

/// Stored bytes that this crate did not write.
pub(crate) fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
