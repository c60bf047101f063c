//! What members and clients are asked over HTTP, and what they answer: JSON.

use serde::{Deserialize, Serialize};

/// A node, and where clients connect to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
    /// Host and port for clients.
    pub addr: String,
    /// Host and port for the other nodes.
    #[serde(rename = "raftAddr", default)]
    pub raft: String,
    /// Whether it votes: a new node gets the state first.
    #[serde(default)]
    pub voter: bool,
}

/// The answer of `GET /members`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// The node that leads, as far as the one that answers knows.
    pub leader: Option<Named>,
    /// All of them, by their number.
    pub members: Vec<Named>,
    /// The id of the cluster, 32 hexadecimal digits.
    #[serde(default)]
    pub cluster: String,
    /// Whether the voters are being changed: until that is done, a majority of those before and one
    /// of those after have to be there.
    #[serde(default)]
    pub changing: bool,
}

/// The answer of `GET /founding`: of which cluster a node is, or is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundingStatus {
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub(crate) node: u64,
    /// The id of the cluster, 32 hexadecimal digits; empty if it has none.
    pub(crate) cluster: String,
    /// The addresses of `--cluster`, while the node waits for that cluster.
    #[serde(default)]
    pub(crate) nodes: Vec<String>,
    /// Whether the cluster was founded: the node knows its members.
    #[serde(rename = "isFounded", default)]
    pub(crate) is_founded: bool,
}

/// The answer of `GET /status`: what a node knows of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
    /// The id of the cluster, 32 hexadecimal digits.
    pub cluster: String,
    /// `leader`, `follower`, `candidate`, `learner`, `stopped`, or `removed` from the cluster.
    pub role: String,
    /// The highest term that it knows.
    pub term: u64,
    /// The node that leads, as far as it knows.
    pub leader: Option<u64>,
    /// The index of its last entry.
    pub last: Option<u64>,
    /// The index of the last entry that it applied.
    pub applied: Option<u64>,
    /// The last epoch that it applied, in nanoseconds of Unix time.
    pub epoch: u64,
    /// Whether leaders answer under their lease.
    #[serde(default)]
    pub lease_reads: bool,
    /// Of a leader: milliseconds by which its clock is further ahead than epochs follow at once;
    /// below 0 if it is behind the epoch, and 0 while epochs follow it.
    #[serde(default)]
    pub clock_step_ms: i64,
    /// Why no timestamp can be issued here until something is done about it, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// Of a leader: the nodes whose logs were reverted in its term: they lacked entries that they
    /// had acknowledged.
    #[serde(default)]
    pub reverted: Vec<u64>,
    /// Milliseconds for which its oldest entry has waited for the disk.
    pub disk_wait_ms: u64,
    /// The version of its program.
    pub version: String,
    /// Random, of this process: another one that says that it is this node has another.
    #[serde(default)]
    pub run: String,
}

/// What a node knows of time: `GET /clock`. In nanoseconds; those of a clock are Unix time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClockStatus {
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
    /// Whether it leads, as far as it knows.
    pub leads: bool,
    /// What its wall clock shows.
    pub clock_ns: u64,
    /// The last epoch that it has applied.
    pub epoch: u64,
    /// How long ago this process got that epoch. `null` if it is another's, or another node leads.
    pub epoch_age_ns: Option<u64>,
    /// How far the clocks of other voters were from this node's, with a round trip. `null` if they
    /// were not compared: this process has led nothing yet, or no other node votes.
    pub spread_ns: Option<u64>,
    /// How far the epoch of a timestamp that it issues now may be from the clocks of the voters
    /// that were compared. `null` where `epoch_age_ns` is.
    pub uncertainty_ns: Option<u64>,
    /// How much further ahead its clock is than epochs follow at once, which is by
    /// `--max-clock-step`; below 0 if it is behind the epoch, and 0 while epochs follow it.
    pub step_ns: i64,
}

/// Names the cluster: `POST /cluster/follow-clock`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FollowClock {
    /// The id of the cluster.
    pub cluster: String,
}

/// The answer: the epoch that follows the leader's clock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FollowedClock {
    /// In nanoseconds of Unix time.
    pub epoch: u64,
}

/// Adds a node, or tells the cluster where it is: `POST /cluster/add`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddNode {
    /// The id of the cluster.
    pub cluster: String,
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
    /// Host and port for clients.
    pub addr: String,
    /// Host and port for the other nodes.
    #[serde(rename = "raftAddr")]
    pub raft: String,
    /// The id of the node's log, 32 hexadecimal digits. Without it, the member keeps its own.
    #[serde(default)]
    pub store: Option<String>,
    /// Whether the node has never been a member. Otherwise it has to be one: a node that was
    /// removed does not come back by itself.
    #[serde(default)]
    pub joins: bool,
}

/// Removes a node: `POST /cluster/remove`. Asks for a number: `POST /cluster/admit`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveNode {
    /// The id of the cluster.
    pub cluster: String,
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
}

/// Gives leadership to another node: `POST /cluster/transfer`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferTo {
    /// The id of the cluster.
    pub cluster: String,
    /// The number of the node; without it, the voter that has most entries.
    #[serde(rename = "nodeID", default)]
    pub node: Option<u64>,
}

/// The answer: the node that leads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Transferred {
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
}
