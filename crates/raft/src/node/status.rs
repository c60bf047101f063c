//! The status of a node: its role, its term, and its view of the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use openraft::async_runtime::instant::Instant;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{RaftMetrics, ServerState};

use crate::node::Node;
use crate::node::commands::{Commands, Member};
use crate::node::error::{NodeError, fatal_message};

/// The role of a node at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A node that gets entries and has no vote.
    Learner,
    /// A node that follows a leader, or waits for one.
    Follower,
    /// A node that asks for votes.
    Candidate,
    /// A node that leads. It may have been replaced: see [`Node::ensure_linearizable`].
    Leader,
    /// A node that has stopped.
    Stopped,
}

/// The status of a node, as far as it knows itself and its cluster.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Status {
    /// The number of the node.
    pub node: u64,
    /// The role of the node.
    pub role: Role,
    /// The highest term that the node knows.
    pub term: u64,
    /// The leader, as far as this node knows. [`Node::status`] leaves out a leader that sent
    /// nothing for two leases, and the node itself if no quorum acknowledged it for as long.
    pub leader: Option<u64>,
    /// The time for which this node has known this leader of this term. Only [`Node::status`]
    /// fills this.
    pub leader_age: Option<Duration>,
    /// The nodes of the cluster.
    pub members: BTreeMap<u64, Member>,
    /// The nodes that vote.
    pub voters: Vec<u64>,
    /// Set between the two steps of a change of the voters, while a majority of the voters before
    /// it and one of the voters after it are needed.
    pub is_joint: bool,
    /// The index of the last entry in the log.
    pub last: Option<u64>,
    /// The index of the last entry that was applied.
    pub applied: Option<u64>,
    /// The time since a quorum acknowledged this leader (leader only).
    pub quorum_age: Option<Duration>,
    /// The index of the last entry that each node is known to have (leader only).
    pub matched: BTreeMap<u64, Option<u64>>,
    /// The time since each other node acknowledged this leader (leader only).
    pub acknowledged: BTreeMap<u64, Duration>,
    /// The nodes whose logs were reverted in this leader's term, with the last index that each had
    /// acknowledged before (leader only). Only [`Node::status`] fills this.
    pub reverted: BTreeMap<u64, u64>,
    /// The reason why the node has stopped by itself.
    pub failure: Option<String>,
}

impl Status {
    pub(crate) fn from_metrics(metrics: &RaftMetrics<Commands>) -> Self {
        let membership = &metrics.membership_config;
        let matched = metrics.replication.iter().flatten();
        let acknowledged = metrics.heartbeat.iter().flatten();
        let acknowledged = acknowledged.filter_map(|(id, at)| Some((*id, at.as_ref()?.elapsed())));
        debug_assert!(
            membership.voter_ids().all(|id| membership.membership().get_node(&id).is_some()),
            "each voter is a member"
        );
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
            leader_age: None,
            members: membership.nodes().map(|(id, member)| (*id, member.clone())).collect(),
            voters: membership.voter_ids().collect(),
            is_joint: membership.membership().get_joint_config().len() > 1,
            last: metrics.last_log_index,
            applied: metrics.last_applied.map(|id| id.index),
            quorum_age: metrics.last_quorum_acked.map(|acked| acked.into_inner().elapsed()),
            matched: matched.map(|(id, last)| (*id, last.map(|last| last.index))).collect(),
            acknowledged: acknowledged.collect(),
            reverted: BTreeMap::new(),
            failure: metrics.running_state.as_ref().err().map(fatal_message),
        }
    }

    /// Returns whether the node acknowledged this leader within `age_max`. The leader itself did.
    pub fn has_heard(&self, node: u64, age_max: Duration) -> bool {
        node == self.node || self.acknowledged.get(&node).is_some_and(|age| *age < age_max)
    }

    /// Returns whether the node leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.role == Role::Leader
    }
}

impl Node {
    /// The number of the node.
    pub fn id(&self) -> u64 {
        *self.raft.node_id()
    }

    /// The status of the node now; it may lag behind an answer that the node gave. Does not wait;
    /// copies the members.
    ///
    /// A leader that no quorum acknowledged for two leases, or that got a message from a leader of
    /// a later term, is a follower here: openraft calls it the leader until it has stored the vote
    /// of another node.
    pub fn status(&self) -> Status {
        let mut status = Status::from_metrics(&self.raft.metrics().borrow_watched());
        let (own, age_max) = (status.node, self.lease() * 2);
        let contact = self.leadership.contact.within(age_max);
        let successor = contact.filter(|(_, term)| *term > status.term).map(|(node, _)| node);
        if status.leads() && (successor.is_some() || self.has_lost_quorum(&status, age_max)) {
            status.role = Role::Follower;
        }
        let leads = status.leads();
        let is_there = |node: &u64| match *node == own {
            true => leads,
            false => contact.is_some_and(|(leader, _)| leader == *node),
        };
        status.leader = successor.or(status.leader.filter(is_there));
        let age = |leader| self.leadership.since.age(leader, status.term);
        status.leader_age = status.leader.and_then(age);
        if status.leads() {
            let reverted = self.network.reversions().in_term(status.term).into_iter();
            status.reverted = reverted.filter(|(id, _)| status.members.contains_key(id)).collect();
        }
        status
    }

    /// The leader of a later term than this node knows, if it sent a message within two leases:
    /// openraft notices it only when the disk has stored its vote.
    pub(crate) fn successor(&self) -> Option<u64> {
        let (node, term) = self.leadership.contact.within(self.lease() * 2)?;
        (term > self.raft.metrics().borrow_watched().current_term).then_some(node)
    }

    /// Returns whether no quorum acknowledged this leader for `age_max`. A leader that votes alone
    /// needs no other node.
    fn has_lost_quorum(&self, status: &Status, age_max: Duration) -> bool {
        // A quorum elected it, and none may have acknowledged it since.
        let won = || self.leadership.since.age(status.node, status.term);
        let age = status.quorum_age.or_else(won);
        status.voters != [status.node] && age.is_some_and(|age| age > age_max)
    }

    /// Returns whether this node leads, as far as it knows, also without a quorum: see
    /// [`Node::status`]. Does not wait.
    pub fn leads(&self) -> bool {
        self.leads_in().is_some()
    }

    /// The time for which the oldest entry has waited for this node's disk; `None` while none
    /// waits. Heartbeats do not need the disk: a leader whose disk stalls stays the leader.
    pub fn disk_wait(&self) -> Option<Duration> {
        self.log_store.oldest_pending_append()
    }

    /// Waits until an entry waits for this node's disk. One task at a time may call this.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn until_disk_wait(&self) {
        self.log_store.wait_for_pending_append().await;
    }

    /// Waits until the node has stopped, and returns the reason. [`NodeError::Stopped`]: it was
    /// stopped, its log failed, or one of its tasks panicked. [`NodeError::OtherData`]: it led
    /// alone, and a leader that it does not know showed that its data is of an earlier time.
    /// [`NodeError::Internal`]: it found a mistake in its code.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn stopped(&self) -> NodeError {
        let mut metrics = self.raft.server_metrics();
        while metrics.changed().await.is_ok() {}
        if let Some(cause) = self.terminal().cause() {
            return cause.clone().into();
        }
        let panicked = || "a task of openraft panicked".into();
        NodeError::Stopped(self.status().failure.unwrap_or_else(panicked))
    }

    /// Waits until the status is as wanted, and returns it; `None` after `patience`. A status has a
    /// leader until another is elected: see [`Node::status`].
    pub async fn wait_for(
        &self,
        patience: Duration,
        is_wanted: impl Fn(&Status) -> bool + Send,
    ) -> Option<Status> {
        let mut metrics = self.raft.metrics();
        let wanted = async move {
            loop {
                let status = Status::from_metrics(&metrics.borrow_watched());
                if is_wanted(&status) {
                    return Some(status);
                }
                metrics.changed().await.ok()?;
            }
        };
        tokio::time::timeout(patience, wanted).await.ok().flatten()
    }
}
