//! The appends that are not durable yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// When each append began that the disk has not answered. The log resolves them in their order.
/// Clones are handles of one queue, whose length the log's buffers bound.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unresolved(Arc<Mutex<VecDeque<Instant>>>);

impl Unresolved {
    /// An append begins. The returned handle ends it.
    pub(crate) fn begin(&self) -> Self {
        self.0.lock().push_back(Instant::now());
        self.clone()
    }

    /// The oldest append resolves.
    pub(crate) fn end(self) {
        self.0.lock().pop_front();
    }

    /// How long the oldest has waited.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.0.lock().front().map(Instant::elapsed)
    }
}
