//! The errors of connections: lost, refused by TLS, or not of a node.

use std::error::Error;
use std::io;

use http_body_util::LengthLimitError;

use crate::error::{AttemptErrorKind, sources, with_sources};
use crate::transport::TlsFailure;

/// Converts the error of a connection: to the failure of TLS that caused it, to
/// [`AttemptErrorKind::NotANode`] if the other side sends what is no HTTP, and to
/// [`AttemptErrorKind::Connection`] if the connection was lost.
pub(crate) fn connection_error(failure: &TlsFailure, error: &hyper::Error) -> AttemptErrorKind {
    if let Some(failure) = failure.get() {
        return AttemptErrorKind::Tls(failure.clone());
    }
    match is_lost(error) {
        true => AttemptErrorKind::Connection(with_sources(error)),
        false => AttemptErrorKind::NotANode(with_sources(error)),
    }
}

/// Adds advice to the error of a connection that was lost before its first answer: the port between
/// nodes ends connections of clients so.
pub(crate) fn with_port_advice(kind: AttemptErrorKind) -> AttemptErrorKind {
    match kind {
        AttemptErrorKind::Connection(why) => AttemptErrorKind::Connection(format!(
            "{why}; is it the address for clients of an Esker node?"
        )),
        kind => kind,
    }
}

/// Converts the error of reading the body of an answer.
pub(crate) fn body_error(
    failure: &TlsFailure,
    error: &(dyn Error + Send + Sync + 'static),
) -> AttemptErrorKind {
    if error.is::<LengthLimitError>() {
        return AttemptErrorKind::Malformed("it is too long");
    }
    match error.downcast_ref::<hyper::Error>() {
        Some(error) => connection_error(failure, error),
        None => AttemptErrorKind::Connection(with_sources(error)),
    }
}

/// Whether the connection ended, or failed in the system.
fn is_lost(error: &hyper::Error) -> bool {
    error.is_closed()
        || error.is_canceled()
        || error.is_incomplete_message()
        || error.is_timeout()
        || sources(error).any(|source| source.is::<io::Error>())
}
