//! Leadership won and lost: lines in the node's log, and the time of the last change.

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::node::replica::NodeRaft;

/// The last leader that a node knew, its term, and the time since when. Clones are handles of one.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeaderSince(Arc<Mutex<Option<(u64, u64, Instant)>>>);

impl LeaderSince {
    /// The time for which the node has known this leader of this term, if it is the last one.
    pub(crate) fn age(&self, leader: u64, term: u64) -> Option<Duration> {
        let known = *self.0.lock();
        known.filter(|(known, of, _)| (*known, *of) == (leader, term)).map(|(.., at)| at.elapsed())
    }

    fn record(&self, leader: u64, term: u64) {
        if self.age(leader, term).is_none() {
            *self.0.lock() = Some((leader, term, Instant::now()));
        }
    }
}

/// Logs each win and loss, and records the last leader, until the node stops. A change that is
/// undone before this task runs is neither logged nor recorded.
pub(crate) async fn report_leadership(raft: NodeRaft, since: LeaderSince) {
    // They change with the vote, the role and the members, not with each heartbeat.
    let mut metrics = raft.server_metrics();
    let node = *raft.node_id();
    let mut leads_in = None;
    loop {
        let (state, term, leader) = {
            let now = metrics.borrow_watched();
            (now.state, now.vote.leader_id.term, now.current_leader)
        };
        let leads = (state == ServerState::Leader).then_some(term);
        if let Some(leader) = leads.map(|_| node).or(leader) {
            since.record(leader, term);
        }
        if leads != leads_in {
            if let Some(before) = leads_in {
                tracing::warn!(node, term = before, now_term = term, leader, "leadership lost");
            }
            if let Some(term) = leads {
                tracing::info!(node, term, "leadership won");
            }
            leads_in = leads;
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}
