//! Why there are no timestamps.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use esker_oracle::Timestamp;

/// Why a call has no timestamps, or a client was not built.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The deadline of the call has passed. The source is the last failure of an attempt since the
    /// last success, if there was one.
    Deadline {
        /// The last failure.
        last: Option<Cause>,
    },
    /// Too many callers wait; the call was not queued. Try again later, or raise
    /// [`ClientBuilder::queue`](crate::ClientBuilder::queue).
    Busy {
        /// The most that may wait.
        most: usize,
    },
    /// A call asks for 1 to [`ClientBuilder::max_timestamps`](crate::ClientBuilder::max_timestamps)
    /// timestamps.
    Count {
        /// What was asked for.
        count: u32,
        /// The most.
        most: u32,
    },
    /// The service takes no such request. If its `--max-timestamps` was lowered, set
    /// [`ClientBuilder::max_timestamps`](crate::ClientBuilder::max_timestamps) to the same number.
    Refused(Cause),
    /// The service answered with a timestamp that is not above those that this client got before it
    /// asked. The answer is discarded. It is another cluster, or one that lost its data.
    WentBack {
        /// Who answered.
        address: String,
        /// The first timestamp of the answer.
        got: Timestamp,
        /// The highest timestamp before.
        highest: Timestamp,
    },
    /// The client's thread has ended, which a bug alone can cause.
    Closed,
    /// The client was built without an endpoint.
    NoEndpoint,
    /// This is no endpoint: it looks like `http://10.0.0.1:8080`.
    Endpoint(String),
    /// An option cannot have this value.
    Option(&'static str),
    /// The client's thread could not be started.
    NoThread(Arc<io::Error>),
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
            Self::WentBack { address, got, highest } => write!(
                f,
                "{address} answered {got}, and this client had {highest} before it asked: it is \
                 another cluster, or one that lost its data"
            ),
            Self::Closed => f.write_str("the client's thread has ended; build a client again"),
            Self::NoEndpoint => f.write_str("a client needs the address of a node"),
            Self::Endpoint(text) => {
                write!(f, "{text:?} is no endpoint; one looks like http://10.0.0.1:8080")
            }
            Self::Option(why) => f.write_str(why),
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

/// Why an attempt failed, and at which node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Host and port of the node.
    pub address: String,
    /// What went wrong there.
    pub kind: CauseKind,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CauseKind {
    /// There is no connection, or it ended.
    Connection(String),
    /// Something accepts connections there that does not answer as a node does.
    NoNode(String),
    /// There was no answer in time. The timestamps of such a request are lost.
    NoAnswer(Duration),
    /// Another node leads, or none is known to.
    NotLeader,
    /// Too many requests wait at the leader.
    Overloaded,
    /// Another status, and the beginning of the text that came with it.
    Status(u16, String),
    /// The answer is not what was asked for.
    Malformed(&'static str),
    /// The node is of another cluster than the first one that this client connected to.
    OtherCluster(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.address)?;
        match &self.kind {
            CauseKind::Connection(why) => f.write_str(why),
            CauseKind::NoNode(why) => write!(f, "no Esker node answers there: {why}"),
            CauseKind::NoAnswer(time) => write!(f, "no answer within {time:?}"),
            CauseKind::NotLeader => f.write_str("the node does not lead"),
            CauseKind::Overloaded => f.write_str("too many requests wait"),
            CauseKind::Status(status, text) => write!(f, "status {status}: {text}"),
            CauseKind::Malformed(what) => write!(f, "malformed answer: {what}"),
            CauseKind::OtherCluster(id) => write!(f, "the node is of another cluster, {id}"),
        }
    }
}

impl std::error::Error for Cause {}
