//! Files that are read again when they change.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::certificate::CHECK_INTERVAL_MIN;

/// Calls `refresh` in each interval, for ever, where it may block. Logs `kept` with the error when
/// it fails, once for each error.
pub(super) async fn keep_fresh<T: Send + Sync + 'static>(
    item: Arc<T>,
    interval: Duration,
    kept: &'static str,
    refresh: fn(&T) -> Result<(), String>,
) {
    let mut ticks = tokio::time::interval(interval.max(CHECK_INTERVAL_MIN));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reported = String::new();
    loop {
        ticks.tick().await;
        let item = Arc::clone(&item);
        let refreshed = tokio::task::spawn_blocking(move || refresh(&item)).await;
        let error = match refreshed {
            Ok(Ok(())) => String::new(),
            Ok(Err(why)) => why,
            Err(error) => error.to_string(),
        };
        if !error.is_empty() && error != reported {
            tracing::warn!(error, "{kept}");
        }
        reported = error;
    }
}
