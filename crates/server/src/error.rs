//! Why a node does not start, or stopped.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a node does not start, or stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// An option that cannot be, and why.
    Option(String),
    /// The node's log.
    Log(esker_consensus::Error),
    /// The node's log was repaired: it may lack votes that the node gave, and entries that it
    /// acknowledged.
    Repaired {
        /// The folder of the log.
        dir: PathBuf,
    },
    /// The node's log is a copy: the node may have voted since it was made.
    Copied {
        /// The folder of the log.
        dir: PathBuf,
    },
    /// The node's log does not say of which node it is.
    Identity {
        /// The folder of the log.
        dir: PathBuf,
    },
    /// The operating system, and what was asked of it.
    Io(String, io::Error),
    /// The clock of this machine shows a time before 1970, or after the year 9999. HTTP has no date
    /// for that, and each answer has one.
    Clock,
    /// The data belongs to another node or cluster, or to none.
    OtherData(String),
    /// No certificate could be made, and why.
    Certificate(String),
    /// The cluster does not take this node, or was not reached.
    Join(String),
    /// The node stopped by itself, and why.
    Stopped(String),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(why) | Self::OtherData(why) | Self::Certificate(why) => f.write_str(why),
            Self::Log(_) => f.write_str("the log of the node cannot be opened"),
            Self::Repaired { dir } => write!(
                f,
                "the log in {} was repaired, and may lack votes and entries of this node: remove \
                 the node from its cluster, and let one join under a new number with new data",
                dir.display()
            ),
            Self::Copied { dir } => write!(
                f,
                "the log in {} is a copy, and this node may have voted since it was made: let a \
                 node join under a new number with new data",
                dir.display()
            ),
            Self::Identity { dir } => write!(
                f,
                "{} has entries and does not say of which node: its identity is damaged, or another \
                 program wrote it; remove the node from its cluster, and let one join under a new \
                 number with new data",
                dir.display()
            ),
            Self::Io(what, _) => f.write_str(what),
            Self::Clock => f.write_str(
                "the clock of this machine shows a time before 1970, or after the year 9999: set it \
                 right, and start the node again",
            ),
            Self::Join(why) => write!(f, "this node cannot join: {why}"),
            Self::Stopped(why) => write!(f, "the node stopped: {why}"),
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
