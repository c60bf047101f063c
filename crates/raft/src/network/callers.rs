//! The callers of a node, and which of them it answers.
//!
//! A node takes calls of the members that it knows, committed or not, with a vote or without, and
//! of the node to which its own vote belongs: a log that catches up names other leaders first.
//!
//! Its members may be old: a leader that was added while this node was down is no member in its
//! view, and only that leader can send the entry that makes it one. So the node takes calls of any
//! number while it knows no members, and when it was out of touch for ten leases: it leads without
//! a quorum, or it took nothing from a leader, or it restarted before.
//!
//! A node that leads alone is never out of touch. If its folder is an older copy, other nodes lead
//! its cluster meanwhile, and it knows none of them. It does not follow them, because it has lost
//! entries that it had acknowledged. It stops.

use std::io;
use std::time::Duration;

use openraft::async_runtime::instant::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::AppendEntriesRequest;
use openraft::storage::RaftStateMachine;
use openraft::{Raft, RaftMetrics, ServerState};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::base::blocking::run_blocking;
use crate::base::type_config::StoredConfig;
use crate::log_store::LogStore;

/// The leases after which a node that took nothing from a leader is out of touch.
const CONTACT_TIMEOUT_LEASES: u32 = 10;
/// The time for which a caller may send nothing: a member, and a caller that is none.
const MEMBER_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const STRANGER_IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The callers of one node.
#[derive(Debug)]
pub(super) struct Callers<C: StoredConfig, S: RaftStateMachine<C>> {
    raft: Raft<C, S>,
    store: LogStore<C>,
    /// The time when this node last took entries or a heartbeat of a leader, or started.
    last_contact: Mutex<Instant>,
    contact_timeout: Duration,
}

impl<C: StoredConfig, S: RaftStateMachine<C>> Callers<C, S> {
    pub(super) fn new(raft: Raft<C, S>, store: LogStore<C>, lease: Duration) -> Self {
        let contact_timeout = lease * CONTACT_TIMEOUT_LEASES;
        Self { raft, store, last_contact: Mutex::new(Instant::now()), contact_timeout }
    }

    /// Records that this node took entries or a heartbeat. Those of a deposed leader, which may
    /// call for ever, are refused.
    pub(super) fn record_contact(&self) {
        *self.last_contact.lock() = Instant::now();
    }

    /// Returns whether this node knows the caller as a member, or follows it.
    pub(super) fn is_known(&self, caller: u64) -> bool {
        is_known(&self.raft.metrics().borrow_watched(), caller)
    }

    /// The time for which this caller may send nothing.
    pub(super) fn idle_timeout(&self, caller: u64) -> Duration {
        if self.is_known(caller) { MEMBER_IDLE_TIMEOUT } else { STRANGER_IDLE_TIMEOUT }
    }

    /// Refuses a caller that cannot be a member.
    pub(super) fn check_member(&self, caller: u64) -> io::Result<()> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let knows_none = metrics.membership_config.nodes().next().is_none();
        if is_known(&metrics, caller) || knows_none || !self.has_contact(&metrics) {
            return Ok(());
        }
        Err(io::Error::other(format!("node {caller} is no member of the cluster")))
    }

    /// Returns whether this node leads alone.
    pub(super) fn leads_alone(&self) -> bool {
        leads_alone(&self.raft.metrics().borrow_watched())
    }

    /// Checks whether a leader that this node does not know shows that its data is of an earlier
    /// time; returns the reason to stop. While a node leads alone, no other node can lead in its
    /// term or a later one, and none has committed an entry that it lacks.
    pub(super) async fn find_stale_data(&self, leader: &AppendEntriesRequest<C>) -> Option<String> {
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
            let lacks = run_blocking(move || store.lacks_entry(commit)).await;
            lacks.ok().filter(|lacks| *lacks)?;
        }
        Some(format!(
            "node {} leads this cluster in term {}, and this node, which leads alone in term \
             {term}, does not know it: its data is of an earlier time, maybe an older copy; remove \
             node {own} from the cluster, and join under a new number with an empty folder",
            theirs.voted_for, theirs.term
        ))
    }

    /// Returns whether this node has had contact with the cluster lately, so that it knows the
    /// members.
    fn has_contact(&self, metrics: &RaftMetrics<C>) -> bool {
        let acked = metrics.last_quorum_acked.map(|acked| acked.into_inner().elapsed());
        let has_quorum = acked.is_some_and(|ago| ago < self.contact_timeout);
        leads_alone(metrics)
            || (metrics.state == ServerState::Leader && has_quorum)
            || self.last_contact.lock().elapsed() < self.contact_timeout
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
