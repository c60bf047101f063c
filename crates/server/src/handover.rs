//! Handover of leadership when the node stops, so that clients wait for no election.

use std::convert::Infallible;
use std::time::Duration;

use crate::node_state::NodeState;

/// The time that one attempt may take.
const HANDOVER_TIMEOUT: Duration = Duration::from_millis(500);
/// The number of leases within which a voter must have answered to count as running.
const ANSWER_LEASES: u32 = 3;

/// Hands leadership over, if this node leads and a quorum of the others runs. Without one, none of
/// them can do more than this node.
pub(crate) async fn hand_over(state: &NodeState) {
    let status = state.node().status();
    let others = status.voters.iter().filter(|voter| **voter != status.node);
    let lately = state.node().lease() * ANSWER_LEASES;
    let running = others.filter(|voter| status.has_heard(**voter, lately)).count();
    if !status.leads() || running <= status.voters.len() / 2 {
        return;
    }
    match state.node().resign(HANDOVER_TIMEOUT).await {
        Ok(node) => tracing::info!(node, "gave leadership away"),
        Err(error) => tracing::info!(%error, "leadership was not given away"),
    }
}

/// Hands leadership over once in each lease. A leader that waits for its clients would keep the
/// others from electing one.
pub(crate) async fn keep_handing_over(state: &NodeState) -> Infallible {
    loop {
        tokio::time::sleep(state.node().lease()).await;
        hand_over(state).await;
    }
}
