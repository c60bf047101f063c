//! The frontier of an open log, and the tasks that wait for it to move.

use parking_lot::{Mutex, MutexGuard};

use crate::state::commit_tracker::CommitTracker;
use crate::state::frontier_waiters::FrontierWaiters;

/// The durably committed slots, and the waiters for the first undecided one.
#[derive(Debug)]
pub(crate) struct Frontier {
    tracker: Mutex<CommitTracker>,
    waiters: FrontierWaiters,
}

impl Frontier {
    /// Creates the frontier of a log whose slots below `start` are decided.
    pub(crate) fn new(start: u64) -> Self {
        let tracker = Mutex::new(CommitTracker::new(start));
        Self { tracker, waiters: FrontierWaiters::default() }
    }

    /// Locks the tracker. No slot lock is taken while it is held.
    pub(crate) fn lock(&self) -> MutexGuard<'_, CommitTracker> {
        self.tracker.lock()
    }

    pub(crate) fn waiters(&self) -> &FrontierWaiters {
        &self.waiters
    }
}
