//! What a node knows of itself and of its cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use openraft::async_runtime::instant::Instant;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{RaftMetrics, ServerState};

use crate::node::commands::{Commands, Member};
use crate::node::error::NodeError;
use crate::node::start::Node;

/// What a node is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It gets entries and has no vote.
    Learner,
    /// It follows a leader, or waits for one.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It leads. Whether it still does has to be proven: see [`Node::prove_leadership`].
    Leader,
    /// It has stopped.
    Stopped,
}

/// What a node knows of itself and of its cluster.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Status {
    /// The number of the node.
    pub node: u64,
    /// What it is.
    pub role: Role,
    /// The highest term that it knows.
    pub term: u64,
    /// The node that leads, as far as this one knows. [`Node::status`] leaves out one that was not
    /// heard of for two leases, and the node itself if it has heard no quorum for as long.
    pub leader: Option<u64>,
    /// All nodes of the cluster.
    pub members: BTreeMap<u64, Member>,
    /// Those that vote.
    pub voters: Vec<u64>,
    /// Whether a change of the voters has taken the first of its two steps: until the second, both
    /// a majority of the voters before and one of those after have to be there.
    pub is_joint: bool,
    /// The index of the last entry in the log.
    pub last: Option<u64>,
    /// The index of the last entry that was applied.
    pub applied: Option<u64>,
    /// Of a leader: how long ago a quorum acknowledged it.
    pub quorum_age: Option<Duration>,
    /// Of a leader: the index of the last entry that each node is known to have.
    pub matched: BTreeMap<u64, Option<u64>>,
    /// Of a leader: how long ago each other node acknowledged it.
    pub acknowledged: BTreeMap<u64, Duration>,
    /// Of a leader: the nodes whose logs were reverted in its term, and the last index that each
    /// had acknowledged before. Only [`Node::status`] knows them.
    pub reverted: BTreeMap<u64, u64>,
    /// Why the node has stopped by itself.
    pub failure: Option<String>,
}

impl Status {
    pub(crate) fn of(metrics: &RaftMetrics<Commands>) -> Self {
        let membership = &metrics.membership_config;
        let matched = metrics.replication.iter().flatten();
        let acknowledged = metrics.heartbeat.iter().flatten();
        let acknowledged = acknowledged.filter_map(|(id, at)| Some((*id, at.as_ref()?.elapsed())));
        Self {
            node: metrics.id,
            role: match metrics.state {
                ServerState::Learner => Role::Learner,
                ServerState::Follower => Role::Follower,
                ServerState::Candidate => Role::Candidate,
                ServerState::Leader => Role::Leader,
                ServerState::Shutdown => Role::Stopped,
            },
            term: metrics.current_term,
            leader: metrics.current_leader,
            members: membership.nodes().map(|(id, member)| (*id, member.clone())).collect(),
            voters: membership.voter_ids().collect(),
            is_joint: membership.membership().get_joint_config().len() > 1,
            last: metrics.last_log_index,
            applied: metrics.last_applied.map(|id| id.index),
            quorum_age: metrics.last_quorum_acked.map(|acked| acked.into_inner().elapsed()),
            matched: matched.map(|(id, last)| (*id, last.map(|last| last.index))).collect(),
            acknowledged: acknowledged.collect(),
            reverted: BTreeMap::new(),
            failure: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }

    /// Whether this leader has heard from that node for less than `lately`. From itself it has.
    pub fn has_heard(&self, node: u64, lately: Duration) -> bool {
        node == self.node || self.acknowledged.get(&node).is_some_and(|ago| *ago < lately)
    }

    /// Whether the node leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.role == Role::Leader
    }
}

impl Node {
    /// The number of the node.
    pub fn id(&self) -> u64 {
        *self.raft.node_id()
    }

    /// What the node knows now; it may lag behind an answer that it gave. Does not wait; copies the
    /// members.
    ///
    /// A leader that no quorum acknowledged for two leases, or that hears of one of a later term,
    /// is a follower here: openraft calls it the leader until it has stored the vote of another.
    pub fn status(&self) -> Status {
        let mut status = Status::of(&self.raft.metrics().borrow_watched());
        let (own, lately) = (status.node, self.lease() * 2);
        let heard = self.heard.recent(lately);
        let successor = heard.filter(|(_, term)| *term > status.term).map(|(node, _)| node);
        if status.leads() && (successor.is_some() || self.is_out_of_touch(&status, lately)) {
            status.role = Role::Follower;
        }
        let is_heard = |node| heard.is_some_and(|(last, _)| last == node);
        let leads = status.leads();
        let is_there = |node: &u64| if *node == own { leads } else { is_heard(*node) };
        status.leader = successor.or(status.leader.filter(is_there));
        if status.leads() {
            let reverted = self.network.reversions().in_term(status.term).into_iter();
            status.reverted = reverted.filter(|(id, _)| status.members.contains_key(id)).collect();
        }
        status
    }

    /// The leader of a later term than this node knows, if one was heard of for less than two
    /// leases: openraft notices it only when the disk has stored its vote.
    pub(crate) fn successor(&self) -> Option<u64> {
        let (node, term) = self.heard.recent(self.lease() * 2)?;
        (term > self.raft.metrics().borrow_watched().current_term).then_some(node)
    }

    /// Whether no quorum acknowledged this leader for so long. One that votes alone asks no other
    /// node.
    fn is_out_of_touch(&self, status: &Status, lately: Duration) -> bool {
        let age = status.quorum_age.or_else(|| {
            // Votes elected it, and no quorum has acknowledged it since.
            let (term, since) = (*self.won.lock())?;
            (term == status.term).then(|| since.elapsed())
        });
        status.voters != [status.node] && age.is_some_and(|age| age > lately)
    }

    /// Whether this node leads, as far as it knows, also one that hears no quorum any more: see
    /// [`Node::status`]. Does not wait.
    pub fn leads(&self) -> bool {
        self.leads_in().is_some()
    }

    /// How long the oldest entry has waited for this node's disk; `None` while none waits.
    /// Heartbeats do not need the disk: a leader whose disk stalls stays the leader.
    pub fn disk_wait(&self) -> Option<Duration> {
        self.entries.oldest_unresolved()
    }

    /// Waits until an entry waits for this node's disk. One task at a time may.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn until_disk_wait(&self) {
        self.entries.until_unresolved().await;
    }

    /// Waits until the node has stopped, and returns why, as [`NodeError::Stopped`]: it was
    /// stopped, its log failed, or one of its tasks panicked. As [`NodeError::OtherData`] if it led
    /// alone, and a leader that it does not know showed that its data is of an earlier time.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn stopped(&self) -> NodeError {
        let mut metrics = self.raft.server_metrics();
        while metrics.changed().await.is_ok() {}
        if let Some(failure) = self.entries.failure().get() {
            return failure.clone().into();
        }
        let panicked = || "a task of openraft panicked".into();
        NodeError::Stopped(self.status().failure.unwrap_or_else(panicked))
    }

    /// Waits until the node's knowledge is as wanted, and returns it; `None` after that time. It
    /// knows a leader until another is elected: see [`Node::status`].
    pub async fn wait_for(
        &self,
        patience: Duration,
        is_wanted: impl Fn(&Status) -> bool + Send,
    ) -> Option<Status> {
        let mut metrics = self.raft.metrics();
        let wanted = async move {
            loop {
                let status = Status::of(&metrics.borrow_watched());
                if is_wanted(&status) {
                    return Some(status);
                }
                metrics.changed().await.ok()?;
            }
        };
        tokio::time::timeout(patience, wanted).await.ok().flatten()
    }
}
