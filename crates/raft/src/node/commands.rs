//! The types of a node: commands and answers are bytes.

use std::fmt;

use bytes::Bytes;
use openraft::impls::leader_id_std::LeaderId;
use serde::{Deserialize, Serialize};

use crate::base::runtime::NodeRuntime;
use crate::base::storage_cause::StorageCause;
use crate::network::link::RaftAddress;

/// A command of the replicated state machine, at most [`Command::MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command(pub Bytes);

impl Command {
    /// The longest command, in bytes.
    pub const MAX: usize = 1 << 20;
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A node of the cluster, with its addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Host and port for the other nodes.
    pub raft: String,
    /// Host and port for clients.
    pub client: String,
    /// The id of the node's log: random, and no other node has it. A node that lost its log has
    /// another id, and may not come back under its number: it forgot its votes.
    pub store: u128,
    /// The numbers of removed nodes that this member keeps for the cluster: see
    /// [`Node::remove`](crate::Node::remove). Empty in a member that is added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<u64>,
}

impl Member {
    /// Returns whether the other is the same node at the same addresses.
    pub fn is_at(&self, other: &Self) -> bool {
        (&self.raft, &self.client, self.store) == (&other.raft, &other.client, other.store)
    }
}

impl RaftAddress for Member {
    fn raft_address(&self) -> &str {
        &self.raft
    }
}

openraft::declare_raft_types!(
    /// The types of a [`Node`](crate::Node).
    pub Commands:
        D = Command,
        R = Bytes,
        NodeId = u64,
        Node = Member,
        LeaderId = LeaderId<Self::Term, Self::NodeId>,
        AsyncRuntime = NodeRuntime,
        ErrorSource = StorageCause,
);
