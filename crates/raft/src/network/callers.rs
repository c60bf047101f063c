//! Whose calls a node takes.
//!
//! A node takes calls of the members that it knows, committed or not, with a vote or without, and
//! of the node to which its own vote belongs: a log that catches up names other leaders first.
//!
//! What it knows may be old: a leader that was added while this node was away is no member yet for
//! a node that only this leader can tell. So it takes calls of any number while it knows no
//! members, and when it was out of touch for ten leases: it leads without a quorum, or heard of no
//! leader, or restarted before.

use std::io;
use std::time::Duration;

use openraft::async_runtime::instant::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::storage::RaftStateMachine;
use openraft::{Raft, RaftMetrics, ServerState};
use tokio::time::Instant;

use crate::base::config::StoredConfig;
use crate::network::heard::Heard;

/// The leases after which a node that heard of no leader is out of touch.
const OUT_OF_TOUCH_LEASES: u32 = 10;
/// How long a caller may send nothing, one that is a member and one that is not.
const MEMBER_IDLE: Duration = Duration::from_secs(60);
const STRANGER_IDLE: Duration = Duration::from_secs(5);

/// The callers of one node.
#[derive(Debug)]
pub(super) struct Callers<C: StoredConfig, S: RaftStateMachine<C>> {
    raft: Raft<C, S>,
    heard: Heard,
    started: Instant,
    out_of_touch: Duration,
}

impl<C: StoredConfig, S: RaftStateMachine<C>> Callers<C, S> {
    pub(super) fn new(raft: Raft<C, S>, heard: Heard, lease: Duration) -> Self {
        let out_of_touch = lease * OUT_OF_TOUCH_LEASES;
        Self { raft, heard, started: Instant::now(), out_of_touch }
    }

    /// Whether this node knows the caller as a member, or follows it.
    pub(super) fn is_known(&self, caller: u64) -> bool {
        is_known(&self.raft.metrics().borrow_watched(), caller)
    }

    /// How long this caller may send nothing.
    pub(super) fn idle(&self, caller: u64) -> Duration {
        if self.is_known(caller) { MEMBER_IDLE } else { STRANGER_IDLE }
    }

    /// Refuses a caller that cannot be a member.
    pub(super) fn refuse_stranger(&self, caller: u64) -> io::Result<()> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let knows_none = metrics.membership_config.nodes().next().is_none();
        if is_known(&metrics, caller) || knows_none || !self.is_in_touch(&metrics) {
            return Ok(());
        }
        Err(io::Error::other(format!("node {caller} is no member of the cluster")))
    }

    /// Whether this node knew the members of late.
    fn is_in_touch(&self, metrics: &RaftMetrics<C>) -> bool {
        let leads_alone = || metrics.membership_config.voter_ids().eq([metrics.id]);
        let acked = metrics.last_quorum_acked.map(|acked| acked.into_inner().elapsed());
        let leads = metrics.state == ServerState::Leader
            && (leads_alone() || acked.is_some_and(|ago| ago < self.out_of_touch));
        leads
            || self.started.elapsed() < self.out_of_touch
            || self.heard.recent(self.out_of_touch).is_some()
    }
}

fn is_known<C: StoredConfig>(metrics: &RaftMetrics<C>, caller: u64) -> bool {
    let is_member = metrics.membership_config.membership().get_node(&caller).is_some();
    is_member || metrics.vote.leader_id.voted_for == caller
}
