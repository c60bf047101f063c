//! Switching of reads under a lease, by an entry that the leader commits.

use std::sync::Arc;
use std::time::Duration;

use esker_oracle::LeaseReads;
use tokio::time::MissedTickBehavior;

use crate::node_state::NodeState;

/// The time between two checks of whether this node leads.
const LEADERSHIP_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The time that the entry may take to be committed.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Switches reads under a lease on or off, whenever this node leads and they are not so.
pub(crate) async fn keep_switched(state: Arc<NodeState>, on: bool) {
    let mut ticks = tokio::time::interval(LEADERSHIP_CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !state.node().leads() || state.lease_reads() == on {
            continue;
        }
        match state.node().propose(LeaseReads(on).encode(), COMMIT_TIMEOUT).await {
            Ok(_) => tracing::info!(on, "reads under a lease were switched"),
            Err(error) => tracing::debug!(%error, on, "reads under a lease were not switched"),
        }
    }
}
