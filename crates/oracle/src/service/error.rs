//! Why there is no timestamp.

use std::fmt;

use esker_raft::{Member, NodeError};

/// The most timestamps of one request, with any
/// [`OracleOptions::max_timestamps`](crate::OracleOptions::max_timestamps).
pub const COUNT_MAX: u32 = 65_536;

/// Why there is no timestamp.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OracleError {
    /// Too many requests wait.
    Busy,
    /// 0, or more than [`OracleOptions::max_timestamps`](crate::OracleOptions::max_timestamps).
    Count(u32),
    /// Another node leads, or none does.
    NotLeader {
        /// The node that leads, as far as this one knows.
        leader: Option<(u64, Member)>,
    },
    /// The node cannot prove that it leads, or cannot advance the epoch.
    Unavailable(NodeError),
    /// There was no answer within [`OracleOptions::patience`](crate::OracleOptions::patience).
    TimedOut,
    /// The oracle was dropped.
    Stopped,
}

impl fmt::Display for OracleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("too many requests are waiting"),
            Self::Count(count) => {
                write!(f, "{count} timestamps: none, or more than a request may ask for")
            }
            Self::NotLeader { leader: Some((node, _)) } => {
                write!(f, "this node does not lead; node {node} does")
            }
            Self::NotLeader { leader: None } => f.write_str("no node leads"),
            Self::Unavailable(_) => f.write_str("no timestamp can be issued now"),
            Self::TimedOut => f.write_str("there was no answer in time"),
            Self::Stopped => f.write_str("the oracle has stopped"),
        }
    }
}

impl std::error::Error for OracleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable(error) => Some(error),
            _ => None,
        }
    }
}

impl From<NodeError> for OracleError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::NotLeader { leader } => Self::NotLeader { leader },
            error => Self::Unavailable(error),
        }
    }
}
