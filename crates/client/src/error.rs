//! Errors of clients and of their calls.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_oracle::Timestamp;

use crate::tls_error::TlsError;

/// The error of a call without timestamps, or of a client that was not built.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The deadline of the call has passed. The source is the last failure of an attempt since the
    /// last success, if there was one. That a node does not lead counts only where no attempt
    /// failed in another way: the reason of the leader is not hidden by those that name it.
    Deadline {
        /// The last failure.
        last: Option<AttemptError>,
    },
    /// Too many callers wait; the call was not queued. Try again later, or raise
    /// [`ClientBuilder::queue`](crate::ClientBuilder::queue).
    Busy {
        /// The most that may wait.
        most: usize,
    },
    /// The number of timestamps is out of bounds: 1 to
    /// [`ClientBuilder::max_timestamps`](crate::ClientBuilder::max_timestamps) timestamps.
    Count {
        /// The number of timestamps of the call.
        count: u32,
        /// The most timestamps of a call.
        most: u32,
    },
    /// The service refuses the request. If its `--max-timestamps` was lowered, set
    /// [`ClientBuilder::max_timestamps`](crate::ClientBuilder::max_timestamps) to the same number.
    Refused(AttemptError),
    /// The service answered with a timestamp that is not above those that this client got before it
    /// asked. The answer is discarded. It is another cluster, or one that lost its data.
    /// Timestamps of 64 bits are here as [`Timestamp::from_u64`] has them.
    NotMonotonic {
        /// The host and port of the node that answered.
        address: String,
        /// The first timestamp of the answer.
        got: Timestamp,
        /// The highest timestamp before.
        highest: Timestamp,
    },
    /// The client's thread has ended. Only a bug can cause that.
    Closed,
    /// A bug: an invariant of the client does not hold. All further calls fail with the same error.
    Internal {
        /// The invariant.
        invariant: &'static str,
    },
    /// The client was built without an endpoint.
    NoEndpoint,
    /// The text is no endpoint: one looks like `http://10.0.0.1:8080`.
    InvalidEndpoint(String),
    /// Some endpoints are `http://`, and some are `https://`.
    MixedSchemes,
    /// There are options of TLS, and no endpoint is `https://`.
    TlsWithoutHttps,
    /// A file of [`TlsOptions`](crate::TlsOptions) cannot be used.
    UnusableFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The system has no authorities to trust, for this reason.
    NoSystemAuthorities(String),
    /// The text is no bearer token: one has printable ASCII characters, and no space.
    InvalidToken,
    /// An option has an invalid value.
    InvalidOption(&'static str),
    /// The client's thread could not be started.
    NoThread(Arc<io::Error>),
}

impl Error {
    /// Reports a broken invariant.
    ///
    /// # Panics
    /// In debug builds.
    #[track_caller]
    pub(crate) fn internal(invariant: &'static str) -> Self {
        debug_assert!(false, "broken invariant: {invariant}");
        Self::Internal { invariant }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline { last: None } => {
                f.write_str("no timestamps by the deadline; no attempt has failed before it")
            }
            Self::Deadline { .. } => f.write_str("no timestamps by the deadline"),
            Self::Busy { most } => {
                write!(f, "{most} callers wait already; call again later, or raise the limit")
            }
            Self::Count { count, most } => {
                write!(f, "{count} timestamps cannot be asked for: from 1 to {most}")
            }
            Self::Refused(_) => f.write_str("the service refuses the request"),
            Self::NotMonotonic { address, got, highest } => write!(
                f,
                "{address} answered {got}, and this client had {highest} before it asked: it is \
                 another cluster, or one that lost its data"
            ),
            Self::Internal { invariant } => {
                write!(f, "the client ended because of a bug: not true that {invariant}")
            }
            Self::Closed => f.write_str("the client's thread has ended; build a client again"),
            Self::NoEndpoint => f.write_str("a client needs the address of a node"),
            Self::InvalidEndpoint(text) => {
                write!(f, "{text:?} is no endpoint; one looks like http://10.0.0.1:8080")
            }
            Self::MixedSchemes => {
                f.write_str("some endpoints are http://, and some are https://: give one scheme")
            }
            Self::TlsWithoutHttps => {
                f.write_str("there are options of TLS, and no endpoint is https://")
            }
            Self::UnusableFile { path, why } => {
                write!(f, "cannot use {}: {why}", path.display())
            }
            Self::NoSystemAuthorities(why) => {
                write!(f, "this system has no authorities to trust ({why}): give a CA file")
            }
            Self::InvalidToken => {
                f.write_str("a token has printable ASCII characters, and no space")
            }
            Self::InvalidOption(why) => f.write_str(why),
            Self::NoThread(_) => f.write_str("the client's thread could not be started"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Deadline { last: Some(cause) } | Self::Refused(cause) => Some(cause),
            Self::NoThread(error) => Some(error),
            _ => None,
        }
    }
}

/// The error of an attempt, and the node that it asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptError {
    /// The host and port of the node.
    pub address: String,
    /// The kind of the error.
    pub kind: AttemptErrorKind,
}

/// The kind of the error of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptErrorKind {
    /// The connection could not be made, or was lost, for this reason.
    Connection(String),
    /// There is no TLS connection, for this reason.
    Tls(TlsError),
    /// The address accepts connections, and does not answer as a node does: this is the difference.
    NotANode(String),
    /// There was no answer in time. The timestamps of the request are lost.
    NoAnswer {
        /// The time that the node had.
        within: Duration,
    },
    /// Another node leads, or no leader is known.
    NotLeader,
    /// Too many requests wait at the leader.
    Overloaded,
    /// The answer has another status.
    Status {
        /// The status of HTTP.
        status: u16,
        /// The beginning of the body.
        text: String,
    },
    /// The node refuses a change to this caller.
    Denied {
        /// 401 if the node wants a token, or another one; 403 if none helps.
        status: u16,
        /// The beginning of the body.
        text: String,
    },
    /// The answer is malformed, for this reason.
    Malformed(&'static str),
    /// The node is of the cluster with this id, and not of the client's cluster.
    OtherCluster(String),
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.kind)
    }
}

impl fmt::Display for AttemptErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(why) => f.write_str(why),
            Self::Tls(why) => write!(f, "{why}"),
            Self::NotANode(why) => write!(f, "no Esker node answers there: {why}"),
            Self::NoAnswer { within } => write!(f, "no answer within {within:?}"),
            Self::NotLeader => f.write_str("the node does not lead"),
            Self::Overloaded => f.write_str("too many requests wait"),
            Self::Denied { status, text } => write!(f, "denied ({status}): {text}"),
            Self::Status { status, text } => write!(f, "status {status}: {text}"),
            Self::Malformed(what) => write!(f, "malformed answer: {what}"),
            Self::OtherCluster(id) => write!(f, "the node is of another cluster, {id}"),
        }
    }
}

impl std::error::Error for AttemptError {}

impl AttemptError {
    /// Returns whether this failure says more than the last one. That another node leads says less
    /// than what that node answered.
    pub(crate) fn replaces(&self, last: Option<&Self>) -> bool {
        self.kind != AttemptErrorKind::NotLeader
            || last.is_none_or(|last| last.kind == AttemptErrorKind::NotLeader)
    }
}

/// The error of a call of a node by a [`NodeCaller`](crate::NodeCaller).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// The node, and the kind of the error.
    pub attempt: AttemptError,
    /// Whether the node may have executed the request, or may still execute it.
    pub may_still_happen: bool,
}

impl CallError {
    pub(crate) fn new(address: &str, kind: AttemptErrorKind, may_still_happen: bool) -> Self {
        Self { attempt: AttemptError { address: address.to_owned(), kind }, may_still_happen }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.attempt)
    }
}

impl std::error::Error for CallError {}

/// Returns the message of an error, and those of its sources.
pub(crate) fn with_sources(error: &(dyn std::error::Error + 'static)) -> String {
    sources(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns the error and its sources.
pub(crate) fn sources<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}
