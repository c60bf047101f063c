//! Errors of a node.

use std::error::Error as _;

use openraft::error::{
    ChangeMembershipError, ClientWriteError, Fatal, ForwardReason, ForwardToLeader,
    LinearizableReadError, RaftError,
};

use crate::base::failure::{Internal, StopCause};
use crate::node::commands::{Commands, Member};

/// The error of a call to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeError {
    /// Another node leads, or none does. Nothing was proposed.
    NotLeader {
        /// The node that leads, as far as this one knows.
        leader: Option<(u64, Member)>,
    },
    /// No quorum has acknowledged this leader for a lease. Nothing was proposed.
    NoQuorum,
    /// This leader gives up its leadership. Nothing was proposed.
    LeadershipTransfer,
    /// The command is above [`Command::MAX`](crate::Command::MAX) bytes.
    TooLong {
        /// Bytes of the command.
        len: usize,
    },
    /// A change of the cluster was not proposed within the time given, with the reason.
    NotProposed(String),
    /// The proposal may be committed, now or later: the leader changed.
    Unknown,
    /// No answer within the time given. A proposal may be committed, now or later.
    TimedOut,
    /// The change of the cluster cannot be made, with the reason.
    Membership(String),
    /// The node has stopped, with the reason. The others may commit what was proposed before.
    Stopped(String),
    /// The node has stopped because of a mistake in its code. The others may commit what was
    /// proposed before.
    Internal {
        /// The sentence that does not hold.
        invariant: &'static str,
    },
    /// The data of this node is of an earlier time of its cluster, and it has stopped; with the
    /// remedy. Only [`Node::stopped`](crate::Node::stopped) returns this.
    OtherData(String),
}

impl NodeError {
    /// Returns whether the request may have been carried out, or may be later. If not, nothing was
    /// proposed: sent again, to this node or another, the request is carried out once.
    pub fn may_still_happen(&self) -> bool {
        matches!(
            self,
            Self::Unknown
                | Self::TimedOut
                | Self::Stopped(_)
                | Self::Internal { .. }
                | Self::OtherData(_)
        )
    }

    /// Returns whether nothing was proposed, and a retry on the same node may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::NoQuorum | Self::LeadershipTransfer | Self::NotProposed(_))
    }
}

impl std::fmt::Display for NodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotLeader { leader: Some((node, _)) } => {
                write!(f, "this node does not lead; node {node} does")
            }
            Self::NotLeader { leader: None } => f.write_str("no node leads"),
            Self::NoQuorum => f.write_str("no quorum answers this leader"),
            Self::LeadershipTransfer => f.write_str("this leader gives up its leadership"),
            Self::TooLong { len } => write!(f, "a command of {len} bytes is too long"),
            Self::NotProposed(why) => write!(f, "nothing was proposed in the time given: {why}"),
            Self::Unknown => f.write_str("the leader changed; the command may be committed"),
            Self::TimedOut => f.write_str("there was no answer in time; it may still be done"),
            Self::Membership(why) => write!(f, "the members cannot be changed: {why}"),
            Self::Stopped(why) => write!(f, "the node has stopped: {why}"),
            Self::Internal { invariant } => {
                write!(f, "the node has stopped: internal error: this does not hold: {invariant}")
            }
            Self::OtherData(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for NodeError {}

impl From<Internal> for NodeError {
    fn from(internal: Internal) -> Self {
        Self::Internal { invariant: internal.invariant }
    }
}

impl From<StopCause> for NodeError {
    fn from(cause: StopCause) -> Self {
        match cause {
            StopCause::OtherData(why) => Self::OtherData(why),
            StopCause::Stopped(why) => Self::Stopped(why),
            StopCause::Internal(internal) => internal.into(),
        }
    }
}

/// The message of the error that stopped openraft: of a store, its own.
pub(crate) fn fatal_message(fatal: &Fatal<Commands>) -> String {
    match fatal {
        Fatal::StorageError(error) => {
            error.source().map_or_else(|| error.to_string(), ToString::to_string)
        }
        fatal => fatal.to_string(),
    }
}

impl From<Fatal<Commands>> for NodeError {
    fn from(error: Fatal<Commands>) -> Self {
        Self::Stopped(fatal_message(&error))
    }
}

impl From<ForwardToLeader<Commands>> for NodeError {
    fn from(forward: ForwardToLeader<Commands>) -> Self {
        match forward.reason {
            ForwardReason::LeaseExpired => Self::NoQuorum,
            ForwardReason::LeadershipTransfer => Self::LeadershipTransfer,
            _ => Self::NotLeader { leader: forward.leader_id.zip(forward.leader_node) },
        }
    }
}

impl From<RaftError<Commands, LinearizableReadError<Commands>>> for NodeError {
    fn from(error: RaftError<Commands, LinearizableReadError<Commands>>) -> Self {
        match error {
            RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)) => forward.into(),
            RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)) => Self::NoQuorum,
            RaftError::Fatal(fatal) => fatal.into(),
        }
    }
}

impl From<RaftError<Commands, ClientWriteError<Commands>>> for NodeError {
    fn from(error: RaftError<Commands, ClientWriteError<Commands>>) -> Self {
        match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => forward.into(),
            RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => Self::Unknown,
            RaftError::APIError(ClientWriteError::ChangeMembershipError(
                ChangeMembershipError::InProgress(_),
            )) => Self::NotProposed("another change of the members is not committed yet".into()),
            RaftError::APIError(error) => Self::Membership(error.to_string()),
            RaftError::Fatal(fatal) => fatal.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use openraft::StorageError;
    use openraft::error::ErrorSource;

    use super::*;
    use crate::base::storage_cause::StorageCause;

    /// Bug: it began with `when Write Store: std::io::error::Error: `.
    #[test]
    fn a_full_disk_is_reported_in_the_words_of_the_store() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let fatal = Fatal::from(StorageError::write(StorageCause::from_error(&full)));
        assert_eq!(NodeError::from(fatal), NodeError::Stopped(full.to_string()));
    }
}
