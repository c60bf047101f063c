//! Switching reads under a lease: an entry that the leader commits.

use std::sync::Arc;
use std::time::Duration;

use esker_oracle::{Epochs, LeaseReads};
use tokio::time::MissedTickBehavior;

use crate::shared::Shared;

/// How often it is looked whether this node leads, and how long the entry may take.
const TICK: Duration = Duration::from_millis(200);
const COMMIT: Duration = Duration::from_secs(1);

/// Whenever this node leads, it switches them as it is set to.
pub(crate) async fn switch(shared: Arc<Shared>, on: bool) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !shared.node.leads() || shared.epochs.with(Epochs::lease_reads) == on {
            continue;
        }
        match shared.node.propose(LeaseReads(on).encode(), COMMIT).await {
            Ok(_) => tracing::info!(on, "reads under a lease were switched"),
            Err(error) => tracing::debug!(%error, on, "reads under a lease were not switched"),
        }
    }
}
