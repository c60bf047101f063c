//! The errors of a node that does not start or has stopped, and of its calls.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The error of a node that does not start, or that has stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// An option is invalid; the text says which and why.
    InvalidOption(String),
    /// The node's log cannot be opened.
    Log(esker_consensus::Error),
    /// The node's log was repaired: votes that the node gave, and entries that it acknowledged,
    /// may be missing.
    LogRepaired {
        /// The folder of the log.
        dir: PathBuf,
    },
    /// The node's log is a copy: the node may have voted since the copy was made.
    LogCopied {
        /// The folder of the log.
        dir: PathBuf,
    },
    /// The node's log has entries, and no identity of a node.
    IdentityMissing {
        /// The folder of the log.
        dir: PathBuf,
    },
    /// An operation of the operating system failed; the text names it.
    Io(String, io::Error),
    /// The clock of this machine shows a time before 1970 or after the year 9999. HTTP has no date
    /// for such a time, and each answer has a date.
    ClockOutOfRange,
    /// The data belongs to another node or cluster, or another process runs with a copy of it.
    DataMismatch(String),
    /// A certificate could not be made or used.
    Certificate(String),
    /// The cluster does not admit this node, or could not be reached.
    Join(String),
    /// The node stopped by itself; the text says why.
    Stopped(String),
    /// A bug: an invariant of the node does not hold. The node stops rather than answer from a
    /// state that cannot be.
    Internal {
        /// The invariant.
        invariant: &'static str,
    },
}

/// A broken invariant that nothing has reported. A node that starts fails with
/// [`ServerError::internal`]; one that runs is stopped by
/// [`FailureSignal::report_broken`](crate::supervisor::FailureSignal::report_broken).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrokenInvariant(pub(crate) &'static str);

impl ServerError {
    /// Reports a broken invariant of a node that does not run yet.
    ///
    /// # Panics
    /// In debug builds, when it is logged.
    #[track_caller]
    pub(crate) fn internal(BrokenInvariant(invariant): BrokenInvariant) -> Self {
        tracing::error!(invariant, "an invariant of the node does not hold");
        debug_assert!(false, "broken invariant: {invariant}");
        Self::Internal { invariant }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidOption(why) | Self::DataMismatch(why) | Self::Certificate(why) => {
                f.write_str(why)
            }
            Self::Log(_) => f.write_str("the log of the node cannot be opened"),
            Self::LogRepaired { dir } => write!(
                f,
                "the log in {} was repaired, and may lack votes and entries of this node: remove \
                 the node from its cluster, and let one join under a new number with new data",
                dir.display()
            ),
            Self::LogCopied { dir } => write!(
                f,
                "the log in {} is a copy, and this node may have voted since it was made: let a \
                 node join under a new number with new data",
                dir.display()
            ),
            Self::IdentityMissing { dir } => write!(
                f,
                "{} has entries and does not say of which node: its identity is damaged, or another \
                 program wrote it; remove the node from its cluster, and let one join under a new \
                 number with new data",
                dir.display()
            ),
            Self::Io(what, _) => f.write_str(what),
            Self::ClockOutOfRange => f.write_str(
                "the clock of this machine shows a time before 1970, or after the year 9999: set it \
                 right, and start the node again",
            ),
            Self::Join(why) => write!(f, "this node cannot join: {why}"),
            Self::Stopped(why) => write!(f, "the node stopped: {why}"),
            Self::Internal { invariant } => {
                write!(f, "the node stopped because of a bug: not true that {invariant}")
            }
        }
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Log(error) => Some(error),
            Self::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

impl From<esker_consensus::Error> for ServerError {
    fn from(error: esker_consensus::Error) -> Self {
        Self::Log(error)
    }
}

/// The error of a call without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// The host and port of the member; empty if no member is known.
    pub address: String,
    /// The reason.
    pub why: String,
    /// Whether the member may have executed the request, or may still execute it.
    pub may_still_happen: bool,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.why)
    }
}

impl std::error::Error for CallError {}
