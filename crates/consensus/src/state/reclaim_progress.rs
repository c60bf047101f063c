//! The locks and the progress of reclaiming.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use esker_log::reclaim::Reclaimed;
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard, RwLock, RwLockReadGuard};

/// The progress of reclaiming since the log was opened.
#[derive(Debug)]
pub(crate) struct ReclaimProgress {
    /// Held while segments or snapshots are removed, and by a backup, which needs them all. One for
    /// all logs of a manager.
    removals: Arc<RwLock<()>>,
    /// Held during a pass, which wakes tasks.
    pass: ReentrantMutex<()>,
    reclaimed: Mutex<Reclaimed>,
    /// The newest record when the last step of a pass ended.
    newest: AtomicU64,
}

impl ReclaimProgress {
    pub(crate) fn new(removals: Arc<RwLock<()>>) -> Self {
        let (pass, reclaimed) = (ReentrantMutex::default(), Mutex::default());
        Self { removals, pass, reclaimed, newest: AtomicU64::new(0) }
    }

    /// The right to remove segments and snapshots; `None` while a backup runs.
    pub(crate) fn try_removal(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.removals.try_read()
    }

    /// Waits for a pass that is in progress. `None` where it is in progress on this thread: a waker
    /// calls the log there.
    pub(crate) fn lock_pass(&self) -> Option<ReentrantMutexGuard<'_, ()>> {
        let is_own = self.pass.is_owned_by_current_thread();
        (!is_own).then(|| self.pass.lock())
    }

    /// Stores the newest record. Returns the one that the last step stored.
    pub(crate) fn swap_newest(&self, newest: u64) -> u64 {
        self.newest.swap(newest, Relaxed)
    }

    pub(crate) fn add(&self, reclaimed: Reclaimed) {
        *self.reclaimed.lock() += reclaimed;
    }

    pub(crate) fn reclaimed(&self) -> Reclaimed {
        *self.reclaimed.lock()
    }
}
