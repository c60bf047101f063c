//! The appends that are not durable yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// When each append began that the disk has not answered. The log resolves them in their order.
/// Clones are handles of one queue, whose length the log's buffers bound.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unresolved(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<VecDeque<Instant>>,
    begins: Notify,
}

impl Unresolved {
    /// An append begins. The returned handle ends it.
    pub(crate) fn begin(&self) -> Self {
        let is_first = {
            let mut waiting = self.0.waiting.lock();
            waiting.push_back(Instant::now());
            waiting.len() == 1
        };
        if is_first {
            self.0.begins.notify_one();
        }
        self.clone()
    }

    /// The oldest append resolves.
    pub(crate) fn end(self) {
        self.0.waiting.lock().pop_front();
    }

    /// How long the oldest has waited.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.0.waiting.lock().front().map(Instant::elapsed)
    }

    /// Waits until one waits. One task at a time may.
    pub(crate) async fn until_any(&self) {
        while self.0.waiting.lock().is_empty() {
            self.0.begins.notified().await;
        }
    }
}
