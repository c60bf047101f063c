//! When an automatic checkpoint is due.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

/// The part of the interval that the next automatic checkpoint waits for after a failed one.
const RETRY_INTERVAL_DIVISOR: u64 = 8;

/// The schedule of automatic checkpoints, in records.
#[derive(Debug)]
pub(crate) struct CheckpointSchedule {
    /// Held while a checkpoint is taken and while the log is closed. Both wake tasks.
    running: ReentrantMutex<()>,
    /// The number of records between two automatic checkpoints.
    interval: u64,
    /// The newest record that the last checkpoint covers.
    covered: AtomicU64,
    /// No automatic checkpoint before the newest record has this number.
    retry_at: AtomicU64,
}

impl CheckpointSchedule {
    pub(crate) fn new(interval: u64) -> Self {
        debug_assert!(interval > 0, "a checkpoint would be due after every record");
        let (covered, retry_at) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { running: ReentrantMutex::default(), interval, covered, retry_at }
    }

    /// Waits for a checkpoint or a close that is in progress. `None` where this thread is the one
    /// that takes it: a waker, which is the caller's code, calls the log there.
    pub(crate) fn lock(&self) -> Option<ReentrantMutexGuard<'_, ()>> {
        let is_own = self.running.is_owned_by_current_thread();
        (!is_own).then(|| self.running.lock())
    }

    /// The number of records since the last checkpoint, of which `newest` is the last. It may be
    /// slightly earlier than what the checkpoint covers.
    #[inline]
    pub(crate) fn records_since(&self, newest: u64) -> u64 {
        newest.saturating_sub(self.covered.load(Relaxed))
    }

    #[inline]
    pub(crate) fn is_due(&self, newest: u64) -> bool {
        self.records_since(newest) >= self.interval && newest >= self.retry_at.load(Relaxed)
    }

    /// Schedules the next attempt after some more records, until [`CheckpointSchedule::succeeded`].
    pub(crate) fn defer(&self, newest: u64) {
        let retry_at = newest.saturating_add(self.interval / RETRY_INTERVAL_DIVISOR);
        self.retry_at.store(retry_at, Relaxed);
    }

    pub(crate) fn succeeded(&self) {
        self.retry_at.store(0, Relaxed);
    }

    /// Records that opening would replay only the records after this one.
    pub(crate) fn set_covered(&self, seq: u64) {
        self.covered.store(seq, Relaxed);
    }
}
