//! When a leader was heard of.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The last node that sent entries or a heartbeat, and when. openraft keeps the name of a leader
/// for as long as no other is elected, whether it is there or not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Option<(u64, Instant)>>>);

impl Heard {
    pub(crate) fn from(&self, node: u64) {
        *self.0.lock() = Some((node, Instant::now()));
    }

    /// Whether this node was the last, and not longer ago.
    pub(crate) fn is_recent(&self, node: u64, most: Duration) -> bool {
        self.0.lock().is_some_and(|(last, at)| last == node && at.elapsed() <= most)
    }
}
