//! Whose calls a node takes.
//!
//! A node takes calls of the members that it knows, committed or not, with a vote or without, and
//! of the node to which its own vote belongs: a log that catches up names other leaders first.
//!
//! What it knows may be old: a leader that was added while this node was away is no member yet for
//! a node that only this leader can tell. So it takes calls of any number while it knows no
//! members, and when it was out of touch for ten leases: it leads without a quorum, or no leader
//! sent it what it took, or it restarted before.
//!
//! A node that leads alone is never out of touch. If its folder is an older copy, other nodes lead
//! its cluster meanwhile, and it knows none of them. It does not follow them: it has lost what it
//! had acknowledged. It stops.

use std::io;
use std::time::Duration;

use openraft::async_runtime::instant::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::AppendEntriesRequest;
use openraft::storage::RaftStateMachine;
use openraft::{Raft, RaftMetrics, ServerState};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::base::blocking::on_own_thread;
use crate::base::config::StoredConfig;
use crate::log_store::LogStore;

/// The leases after which a node that took nothing from a leader is out of touch.
const OUT_OF_TOUCH_LEASES: u32 = 10;
/// How long a caller may send nothing, one that is a member and one that is not.
const MEMBER_IDLE: Duration = Duration::from_secs(60);
const STRANGER_IDLE: Duration = Duration::from_secs(5);

/// The callers of one node.
#[derive(Debug)]
pub(super) struct Callers<C: StoredConfig, S: RaftStateMachine<C>> {
    raft: Raft<C, S>,
    store: LogStore<C>,
    /// When this node started, or last took what a leader sent.
    in_touch: Mutex<Instant>,
    out_of_touch: Duration,
}

impl<C: StoredConfig, S: RaftStateMachine<C>> Callers<C, S> {
    pub(super) fn new(raft: Raft<C, S>, store: LogStore<C>, lease: Duration) -> Self {
        let out_of_touch = lease * OUT_OF_TOUCH_LEASES;
        Self { raft, store, in_touch: Mutex::new(Instant::now()), out_of_touch }
    }

    /// This node took what a leader sent. One that was deposed may call for ever, and is refused.
    pub(super) fn accepted(&self) {
        *self.in_touch.lock() = Instant::now();
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

    /// Whether this node leads alone.
    pub(super) fn leads_alone(&self) -> bool {
        leads_alone(&self.raft.metrics().borrow_watched())
    }

    /// Why this node may not go on, if a leader that it does not know shows that: no other node can
    /// lead in the term of one that leads alone, or later, and none has committed what that lacks.
    pub(super) async fn refuted_by(&self, leader: &AppendEntriesRequest<C>) -> Option<String> {
        let (own, term) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            if !leads_alone(&metrics) {
                return None;
            }
            (metrics.id, metrics.vote.leader_id.term)
        };
        let theirs = leader.vote.leader_id;
        if theirs.term < term {
            let (store, commit) = (self.store.clone(), leader.leader_commit?);
            // An entry that was purged, or cannot be read, shows nothing.
            let lacks = on_own_thread(move || store.lacks(commit)).await;
            lacks.ok().filter(|lacks| *lacks)?;
        }
        Some(format!(
            "node {} leads this cluster in term {}, and this node, which leads alone in term \
             {term}, does not know it: its data is of an earlier time, maybe an older copy; remove \
             node {own} from the cluster, and join under a new number with an empty folder",
            theirs.voted_for, theirs.term
        ))
    }

    /// Whether this node knew the members of late.
    fn is_in_touch(&self, metrics: &RaftMetrics<C>) -> bool {
        let acked = metrics.last_quorum_acked.map(|acked| acked.into_inner().elapsed());
        let has_quorum = acked.is_some_and(|ago| ago < self.out_of_touch);
        leads_alone(metrics)
            || (metrics.state == ServerState::Leader && has_quorum)
            || self.in_touch.lock().elapsed() < self.out_of_touch
    }
}

fn leads_alone<C: StoredConfig>(metrics: &RaftMetrics<C>) -> bool {
    let is_alone = || metrics.membership_config.voter_ids().eq([metrics.id]);
    metrics.state == ServerState::Leader && is_alone()
}

fn is_known<C: StoredConfig>(metrics: &RaftMetrics<C>, caller: u64) -> bool {
    let is_member = metrics.membership_config.membership().get_node(&caller).is_some();
    is_member || metrics.vote.leader_id.voted_for == caller
}
