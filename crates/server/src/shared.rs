//! What all requests use.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use esker_oracle::{Epochs, Oracle, Step};
use esker_raft::{Member, Node, Replica, Role, Status};
use parking_lot::Mutex;

use crate::counters::Counters;
use crate::forward::Forwarder;
use crate::identity::Identity;
use crate::options::FollowerAnswer;
use crate::protocol::{ClockStatus, Members, Named, NodeStatus};
use crate::refusals::Refusals;
use crate::rooms::Rooms;

/// How long a change of the members, or of the leader, may take.
pub(crate) const CHANGE: Duration = Duration::from_secs(10);

/// A node and what belongs to it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) identity: Identity,
    pub(crate) node: Arc<Node>,
    pub(crate) epochs: Replica<Epochs>,
    pub(crate) oracle: Oracle,
    pub(crate) counters: Counters,
    /// What connections hold until it is sent.
    pub(crate) rooms: Rooms,
    /// How this node answers while another one leads.
    pub(crate) followers: Followers,
    /// For how long a voter that acknowledged a heartbeat gives no vote.
    pub(crate) lease: Duration,
    pub(crate) refusals: Refusals,
    /// Lines of connections that were not accepted, or beyond the limit.
    pub(crate) full: Refusals,
    /// Whether the leader said last that this node is no member any more. What the node itself
    /// knows of the members is from before that.
    pub(crate) is_removed: AtomicBool,
    /// Held while the Raft node stops.
    pub(crate) stopping: Mutex<()>,
    /// Random, of this process.
    pub(crate) run: String,
}

/// What a node does with a request for timestamps while another node leads.
#[derive(Debug)]
pub(crate) enum Followers {
    Refuse,
    Redirect,
    Forward(Box<Forwarder>),
}

impl Followers {
    /// Of this node, which waits so long for the leader.
    pub(crate) fn new(answer: FollowerAnswer, node: u64, patience: Duration) -> Self {
        match answer {
            FollowerAnswer::Refuse => Self::Refuse,
            FollowerAnswer::Redirect => Self::Redirect,
            FollowerAnswer::Forward => Self::Forward(Box::new(Forwarder::new(node, patience))),
        }
    }
}

impl Shared {
    /// Stops the Raft node, and closes its log. Blocks, also while another caller does it.
    pub(crate) fn stop_node(&self) -> io::Result<()> {
        let _turn = self.stopping.lock();
        self.node.stop()
    }

    /// Counts a connection beyond the limit of this protocol, and logs it once a minute.
    pub(crate) fn is_full(&self, protocol: &'static str, connections: usize) {
        self.counters.over_limit.fetch_add(1, Relaxed);
        if self.full.is_new(protocol, None, "full") {
            tracing::warn!(
                protocol,
                connections,
                "all connections are in use (--connections, and the limit of open files): more get \
                 no timestamps"
            );
        }
    }

    pub(crate) fn named(id: u64, member: &Member, voter: bool) -> Named {
        Named { node: id, addr: member.client.clone(), raft: member.raft.clone(), voter }
    }

    /// The members, from what this node knows: it answers without a quorum.
    pub(crate) fn members(&self) -> Members {
        let status = self.node.status();
        let named = |id: &u64, member| Self::named(*id, member, status.voters.contains(id));
        let leader = status.leader.and_then(|id| Some(named(&id, status.members.get(&id)?)));
        let is_gone = |id: &u64| *id == status.node && self.is_removed.load(Relaxed);
        let members = status.members.iter().filter(|(id, _)| !is_gone(id));
        let members = members.map(|(id, member)| named(id, member)).collect();
        let cluster = self.identity.cluster.to_string();
        Members { leader, members, cluster, changing: status.is_joint }
    }

    /// How much further ahead the clock is than epochs follow at once; below 0 if it is behind.
    fn clock_step_ns(&self) -> i64 {
        let ns = |by: Duration| i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        match self.oracle.clock().step {
            Step::None => 0,
            Step::Forward(by) => ns(by),
            Step::Backward(by) => -ns(by),
        }
    }

    pub(crate) fn clock(&self) -> ClockStatus {
        let (status, clock) = (self.node.status(), self.oracle.clock());
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let leads = status.leads();
        ClockStatus {
            node: status.node,
            leads,
            clock_ns: clock.clock,
            epoch: clock.epoch,
            epoch_age_ns: clock.epoch_age.filter(|_| leads).map(ns),
            spread_ns: clock.spread.map(ns),
            uncertainty_ns: clock.uncertainty().filter(|_| leads).map(ns),
            step_ns: if leads { self.clock_step_ns() } else { 0 },
        }
    }

    pub(crate) fn status(&self) -> NodeStatus {
        let status = self.node.status();
        let disk_wait = self.node.disk_wait().unwrap_or_default();
        NodeStatus {
            node: status.node,
            cluster: self.identity.cluster.to_string(),
            role: match self.is_removed.load(Relaxed) {
                true => "removed".to_owned(),
                false => role(&status).to_owned(),
            },
            term: status.term,
            leader: status.leader,
            last: status.last,
            applied: status.applied,
            epoch: self.epochs.with(|epochs| epochs.last()),
            lease_reads: self.epochs.with(Epochs::lease_reads),
            clock_step_ms: if status.leads() { self.clock_step_ns() / 1_000_000 } else { 0 },
            blocked: self.oracle.blocked().map(|why| why.to_string()),
            reverted: status.reverted.keys().copied().collect(),
            disk_wait_ms: u64::try_from(disk_wait.as_millis()).unwrap_or(u64::MAX),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run: self.run.clone(),
        }
    }
}

fn role(status: &Status) -> &'static str {
    match status.role {
        Role::Learner => "learner",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
        Role::Stopped => "stopped",
    }
}
