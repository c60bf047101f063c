//! The appends that are not durable yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::base::failure::Internal;

/// The start times of the appends that the disk has not answered. The log resolves appends in their
/// order. Clones are handles of one queue, whose length the log's buffers bound.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingAppends(Arc<AppendTimes>);

#[derive(Debug, Default)]
struct AppendTimes {
    waiting: Mutex<VecDeque<Instant>>,
    first_begins: Notify,
}

/// An append that waits for the disk.
#[derive(Debug)]
#[must_use = "the append waits until it is resolved"]
pub(crate) struct PendingAppend(Arc<AppendTimes>);

impl PendingAppend {
    /// Records that the oldest append is resolved.
    pub(crate) fn resolve(self) -> Result<(), Internal> {
        match self.0.waiting.lock().pop_front() {
            Some(_) => Ok(()),
            None => Err(Internal::new("an append is resolved once")),
        }
    }
}

impl PendingAppends {
    /// Records an append that begins.
    pub(crate) fn begin(&self) -> PendingAppend {
        let is_first = {
            let mut waiting = self.0.waiting.lock();
            waiting.push_back(Instant::now());
            waiting.len() == 1
        };
        if is_first {
            self.0.first_begins.notify_one();
        }
        PendingAppend(Arc::clone(&self.0))
    }

    /// Forgets the appends that wait, as if they were resolved.
    #[cfg(test)]
    pub(crate) fn forget_all(&self) {
        self.0.waiting.lock().clear();
    }

    /// The time for which the oldest append has waited.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.0.waiting.lock().front().map(Instant::elapsed)
    }

    /// Waits until an append waits for the disk. One task at a time may call this.
    pub(crate) async fn wait_for_any(&self) {
        while self.0.waiting.lock().is_empty() {
            self.0.first_begins.notified().await;
        }
    }
}
