//! The JSON of requests and answers between nodes, and between nodes and clients.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::BrokenInvariant;

/// A member of the cluster, and its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberInfo {
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
    /// Host and port for clients.
    pub addr: String,
    /// Host and port for the other nodes.
    #[serde(rename = "raftAddr", default)]
    pub raft: String,
    /// Whether it votes. A new node gets the state first.
    #[serde(default)]
    pub voter: bool,
}

/// The answer of `GET /members`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// The leader, as far as the node that answers knows.
    pub leader: Option<MemberInfo>,
    /// All members, by their number.
    pub members: Vec<MemberInfo>,
    /// The id of the cluster, 32 hexadecimal digits.
    #[serde(default)]
    pub cluster: String,
    /// Whether the voters are being changed. Meanwhile a majority of the old voters and one of the
    /// new voters are needed.
    #[serde(default)]
    pub changing: bool,
}

/// The answer of `GET /founding`: the cluster that a node belongs to, or waits for.
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

impl FoundingStatus {
    pub(crate) fn encode(&self) -> Result<Bytes, BrokenInvariant> {
        let body = serde_json::to_vec(self)
            .map_err(|_| BrokenInvariant("the status of a founding is encoded as JSON"))?;
        debug_assert_eq!(serde_json::from_slice::<Self>(&body).ok().as_ref(), Some(self));
        Ok(body.into())
    }
}

/// The answer of `GET /status`: the state of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
    /// The id of the cluster, 32 hexadecimal digits.
    pub cluster: String,
    /// `leader`, `follower`, `candidate`, `learner`, `stopped`, or `removed` from the cluster.
    pub role: String,
    /// The highest term that the node knows.
    pub term: u64,
    /// The leader, as far as the node knows.
    pub leader: Option<u64>,
    /// The milliseconds for which the node has known this leader of this term.
    #[serde(default)]
    pub leader_age_ms: Option<u64>,
    /// The index of the last entry in its log.
    pub last: Option<u64>,
    /// The index of the last entry that it applied.
    pub applied: Option<u64>,
    /// The last epoch that it applied, in nanoseconds of Unix time.
    pub epoch: u64,
    /// Whether leaders answer under their lease.
    #[serde(default)]
    pub lease_reads: bool,
    /// The milliseconds by which the leader's clock is further ahead than epochs follow at once;
    /// below 0 if it is behind the epoch, and 0 while epochs follow it (leader only).
    #[serde(default)]
    pub clock_step_ms: i64,
    /// The reason why the node can issue no timestamp until an operator acts, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// Nodes whose logs were reverted in this leader's term (leader only): they lacked entries that
    /// they had acknowledged.
    #[serde(default)]
    pub reverted: Vec<u64>,
    /// The other nodes, as this leader sees them (leader only).
    #[serde(default)]
    pub followers: Vec<FollowerStatus>,
    /// The milliseconds for which its oldest entry has waited for the disk.
    pub disk_wait_ms: u64,
    /// The version of its program.
    pub version: String,
    /// A random id of this process. Another process with a copy of the data has another id.
    #[serde(default)]
    pub run: String,
}

/// A node, as its leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowerStatus {
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
    /// The index of the last entry that the node is known to have.
    pub matched: Option<u64>,
    /// The milliseconds since the node acknowledged this leader; `None` if it has not yet.
    pub heard_ms: Option<u64>,
    /// Whether the node acknowledged this leader within two leases.
    pub answers: bool,
}

/// The answer of `GET /clock`: the clock and the epoch of a node, in nanoseconds. Times are Unix
/// time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClockStatus {
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
    /// Whether the node leads, as far as it knows.
    pub leads: bool,
    /// The time that its wall clock shows.
    pub clock_ns: u64,
    /// The last epoch that it has applied.
    pub epoch: u64,
    /// The time since this process got that epoch. `null` if another process got it, or another
    /// node leads.
    pub epoch_age_ns: Option<u64>,
    /// The largest difference between this clock and those of the other voters, with a round trip.
    /// `null` where they are not compared: another node leads, or no other node votes.
    pub spread_ns: Option<u64>,
    /// The largest difference between the epoch of a timestamp issued now and the clocks of the
    /// voters that were compared. `null` when `epoch_age_ns` is.
    pub uncertainty_ns: Option<u64>,
    /// The time by which its clock is further ahead than epochs follow at once, which is
    /// `--max-clock-step`; below 0 if it is behind the epoch, and 0 while epochs follow it.
    pub step_ns: i64,
}

/// The request of `POST /cluster/follow-clock`: epochs follow the leader's clock at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FollowClockRequest {
    /// The id of the cluster.
    pub cluster: String,
}

/// The answer of `POST /cluster/follow-clock`: the epoch that follows the leader's clock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FollowClockResponse {
    /// The epoch, in nanoseconds of Unix time.
    pub epoch: u64,
}

/// The request of `POST /cluster/add`: adds a node, or changes the addresses of a member.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddNodeRequest {
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
    /// The id of the node's log, 32 hexadecimal digits. `None`: the member keeps its own.
    #[serde(default)]
    pub store: Option<String>,
    /// Whether the node is new. Otherwise it has to be a member: a node that was removed does not
    /// come back by itself.
    #[serde(default)]
    pub joins: bool,
}

/// The request of `POST /cluster/admit`: asks whether a new node may have a number.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdmitNodeRequest {
    /// The id of the cluster.
    pub(crate) cluster: String,
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub(crate) node: u64,
}

/// The request of `POST /cluster/remove`: removes a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveNodeRequest {
    /// The id of the cluster.
    pub cluster: String,
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
}

/// The request of `POST /cluster/transfer`: gives leadership to another node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// The id of the cluster.
    pub cluster: String,
    /// The number of the node. `None`: the voter with the most entries.
    #[serde(rename = "nodeID", default)]
    pub node: Option<u64>,
}

/// The answer of `POST /cluster/transfer`: the node that leads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TransferResponse {
    /// The number of the node.
    #[serde(rename = "nodeID")]
    pub node: u64,
}

/// The answer of `POST /sequence/NAME`: the numbers from `first` on, which belong to the request's
/// key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceNumbers {
    /// The name of the sequence.
    pub name: String,
    /// The first number.
    pub first: u64,
    /// The number of consecutive numbers.
    pub n: u32,
}

/// The answer of `PUT /sequence/NAME`: the sequence that was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedSequence {
    /// The name of the sequence.
    pub name: String,
    /// Its first number.
    pub first: u64,
}

/// The answer of `GET /sequences`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceList {
    /// All sequences, by their names.
    pub sequences: Vec<SequenceEntry>,
}

/// A sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceEntry {
    /// Its name.
    pub name: String,
    /// Its next number; 2^53 when none is left.
    pub next: u64,
}
