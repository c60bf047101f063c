//! Giving leadership away when the node stops, so that clients wait for no election.

use std::convert::Infallible;
use std::time::Duration;

use crate::shared::Shared;

/// How long one try may take.
const HANDOVER: Duration = Duration::from_millis(500);

/// Gives leadership away, if this node has it and a quorum of the others is there. Without one,
/// none of them can do more than this node.
pub(crate) async fn give(shared: &Shared) {
    let status = shared.node.status();
    let others = status.voters.iter().filter(|voter| **voter != status.node);
    let there = others.filter(|voter| status.has_heard(**voter, shared.lease * 3)).count();
    if !status.leads() || there <= status.voters.len() / 2 {
        return;
    }
    match shared.node.resign(HANDOVER).await {
        Ok(node) => tracing::info!(node, "gave leadership away"),
        Err(error) => tracing::info!(%error, "leadership was not given away"),
    }
}

/// Gives it away again and again. A leader that waits for its clients would keep the others from
/// electing one.
pub(crate) async fn offer(shared: &Shared) -> Infallible {
    loop {
        tokio::time::sleep(shared.lease).await;
        give(shared).await;
    }
}
