//! A leader whose disk stalls gives its leadership away: heartbeats do not need the disk, so no
//! election would.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::shared::Shared;

/// How often the disk's oldest entry is looked at, while there is one.
const TICK: Duration = Duration::from_millis(100);
/// How long a transfer may take.
const TRANSFER: Duration = Duration::from_secs(1);

/// Looks at the disk, for ever.
pub(crate) async fn watch(shared: Arc<Shared>, stall: Duration) {
    let mut is_known = false;
    loop {
        // An idle node has no timers.
        if !is_known {
            shared.node.until_disk_wait().await;
        }
        tokio::time::sleep(TICK).await;
        let wait = shared.node.disk_wait().filter(|wait| *wait > stall);
        let Some(wait) = wait.filter(|_| shared.node.status().leads()) else {
            is_known = false;
            continue;
        };
        if !is_known {
            shared.counters.disk_stalls.fetch_add(1, Relaxed);
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            tracing::error!(wait_ms, "the disk stalls; this leader gives its leadership away");
        }
        match shared.node.resign(TRANSFER).await {
            Ok(node) => tracing::info!(node, "gave leadership away"),
            // It tries again at the next tick, and says so once.
            Err(error) if !is_known => {
                tracing::warn!(%error, "leadership was not given away; trying again");
            }
            Err(_) => {}
        }
        is_known = true;
    }
}
