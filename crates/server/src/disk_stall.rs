//! Detection of a stalled disk: a leader whose disk stalls gives its leadership away. Heartbeats do
//! not need the disk, so no election would.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::node_state::NodeState;

/// The time between two checks of the oldest entry that waits for the disk, while there is one.
const DISK_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The time that a transfer of leadership may take.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(1);

/// Checks the disk for ever. It stalls when an entry waits for longer than `stall`.
pub(crate) async fn watch(state: Arc<NodeState>, stall: Duration) {
    let mut is_reported = false;
    loop {
        // An idle node has no timers.
        if !is_reported {
            state.node().until_disk_wait().await;
        }
        tokio::time::sleep(DISK_CHECK_INTERVAL).await;
        let wait = state.node().disk_wait().filter(|wait| *wait > stall);
        let Some(wait) = wait.filter(|_| state.node().status().leads()) else {
            is_reported = false;
            continue;
        };
        if !is_reported {
            state.counters().disk_stalls.fetch_add(1, Relaxed);
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            tracing::error!(wait_ms, "the disk stalls; this leader gives its leadership away");
        }
        match state.node().resign(TRANSFER_TIMEOUT).await {
            Ok(node) => tracing::info!(node, "gave leadership away"),
            // It tries again after the next check, and says so once.
            Err(error) if !is_reported => {
                tracing::warn!(%error, "leadership was not given away; trying again");
            }
            Err(_) => {}
        }
        is_reported = true;
    }
}
