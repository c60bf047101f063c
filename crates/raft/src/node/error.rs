//! Why a node did not do what it was asked for.

use openraft::error::{
    ChangeMembershipError, ClientWriteError, Fatal, ForwardReason, ForwardToLeader,
    LinearizableReadError, RaftError,
};

use crate::base::failure::Failure;
use crate::node::commands::{Commands, Member};

/// Why a node did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeError {
    /// Another node leads, or none does. Nothing was proposed.
    NotLeader {
        /// The node that leads, as far as this one knows.
        leader: Option<(u64, Member)>,
    },
    /// This node leads, and has not heard from a quorum for a lease. Nothing was proposed.
    NoQuorum,
    /// This node led, and gives up its leadership. Nothing was proposed.
    LeadershipTransfer,
    /// The command is above [`Command::MAX`](crate::Command::MAX) bytes.
    TooLong {
        /// Bytes of the command.
        len: usize,
    },
    /// A change of the cluster was not proposed within the time given, and why.
    NotProposed(String),
    /// It was proposed, and may be committed, now or later.
    Unknown,
    /// No answer within the time given. A proposal may be committed, now or later.
    TimedOut,
    /// A change of the cluster that cannot be made, and why.
    Membership(String),
    /// This node has stopped, and why. What was proposed before may be committed by the others.
    Stopped(String),
    /// This node has stopped because its data is of an earlier time of its cluster, and what to do.
    /// [`Node::stopped`](crate::Node::stopped) alone returns it.
    OtherData(String),
}

impl NodeError {
    /// Whether what was asked for may have happened, or may happen later. If not, nothing was
    /// proposed: it can be asked for again, of this node or another, and happens once.
    pub fn may_still_happen(&self) -> bool {
        matches!(self, Self::Unknown | Self::TimedOut | Self::Stopped(_) | Self::OtherData(_))
    }

    /// Whether nothing was proposed, and the same node may do it a little later.
    pub(crate) fn is_passing(&self) -> bool {
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
            Self::OtherData(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for NodeError {}

impl From<Failure> for NodeError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::OtherData(why) => Self::OtherData(why),
            Failure::Stopped(why) => Self::Stopped(why),
        }
    }
}

impl From<Fatal<Commands>> for NodeError {
    fn from(error: Fatal<Commands>) -> Self {
        Self::Stopped(error.to_string())
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
