//! Leadership won and lost: lines in the node's log, and the time of the last win.

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::node::replica::NodeRaft;

/// The last term that a node won, and the time of that. Clones are handles of one.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeadershipWin(Arc<Mutex<Option<(u64, Instant)>>>);

impl LeadershipWin {
    /// The time for which the node has led, if it won this term last.
    pub(crate) fn age(&self, term: u64) -> Option<Duration> {
        let won = *self.0.lock();
        won.filter(|(won, _)| *won == term).map(|(_, at)| at.elapsed())
    }

    fn record(&self, term: u64) {
        *self.0.lock() = Some((term, Instant::now()));
    }
}

/// Logs each win and loss, and records the last win, until the node stops. A change that is undone
/// before this task runs is neither logged nor recorded.
pub(crate) async fn report_leadership(raft: NodeRaft, won: LeadershipWin) {
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
        if leads != leads_in {
            if let Some(before) = leads_in {
                tracing::warn!(node, term = before, now_term = term, leader, "leadership lost");
            }
            if let Some(term) = leads {
                won.record(term);
                tracing::info!(node, term, "leadership won");
            }
            leads_in = leads;
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}
