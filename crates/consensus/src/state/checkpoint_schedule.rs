//! When an automatic checkpoint is due.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::ThreadId;

use parking_lot::{Mutex, MutexGuard};

/// The part of the interval that the next automatic checkpoint waits for after a failed one.
const RETRY_INTERVAL_DIVISOR: u64 = 8;

/// The schedule of automatic checkpoints, in records.
#[derive(Debug)]
pub(crate) struct CheckpointSchedule {
    /// Held while a checkpoint is taken and while the log is closed.
    running: Mutex<()>,
    /// The thread that holds `running`.
    holder: Mutex<Option<ThreadId>>,
    /// The number of records between two automatic checkpoints.
    interval: u64,
    /// The newest record that the last checkpoint covers.
    covered: AtomicU64,
    /// No automatic checkpoint before the newest record has this number.
    retry_at: AtomicU64,
}

/// Held while a checkpoint is taken and while the log is closed.
#[derive(Debug)]
pub(crate) struct CheckpointLock<'a> {
    holder: &'a Mutex<Option<ThreadId>>,
    // Released after `holder` is cleared.
    _running: MutexGuard<'a, ()>,
}

impl Drop for CheckpointLock<'_> {
    fn drop(&mut self) {
        *self.holder.lock() = None;
    }
}

impl CheckpointSchedule {
    pub(crate) fn new(interval: u64) -> Self {
        debug_assert!(interval > 0, "a checkpoint would be due after every record");
        let (covered, retry_at) = (AtomicU64::new(0), AtomicU64::new(0));
        let (running, holder) = (Mutex::default(), Mutex::default());
        Self { running, holder, interval, covered, retry_at }
    }

    /// Waits for a checkpoint or a close that is in progress.
    pub(crate) fn lock(&self) -> CheckpointLock<'_> {
        let running = self.running.lock();
        *self.holder.lock() = Some(std::thread::current().id());
        CheckpointLock { holder: &self.holder, _running: running }
    }

    /// As [`CheckpointSchedule::lock`]; `None` if it would wait for its own thread: that calls a
    /// waker, which is the caller's code, while it takes a checkpoint.
    pub(crate) fn lock_of_another(&self) -> Option<CheckpointLock<'_>> {
        let is_own = *self.holder.lock() == Some(std::thread::current().id());
        (!is_own).then(|| self.lock())
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
