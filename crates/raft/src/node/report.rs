//! Leadership won and lost: in the log of the node, and since when it leads.

use std::sync::Arc;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::node::replica::Core;

/// The last term that a node won, and when.
pub(crate) type Won = Arc<Mutex<Option<(u64, Instant)>>>;

/// Logs each change, and keeps the last win, until the node stops. One that is undone before it is
/// seen is neither logged nor kept.
pub(crate) async fn report_leadership(raft: Core, won: Won) {
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
                *won.lock() = Some((term, Instant::now()));
                tracing::info!(node, term, "leadership won");
            }
            leads_in = leads;
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}
