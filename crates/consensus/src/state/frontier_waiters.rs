//! The wait list for the frontier.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Waker;

use parking_lot::Mutex;

use crate::base::wake::wake;

/// The tasks that wait for the frontier: one entry for each [`Watch`](crate::Watch) that waits.
#[derive(Debug, Default)]
pub(crate) struct FrontierWaiters {
    /// The number of watches, waiting or not.
    watches: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
}

impl FrontierWaiters {
    /// Counts a new watch.
    pub(crate) fn add_watch(&self) {
        self.watches.fetch_add(1, SeqCst);
    }

    /// Counts a watch that is dropped.
    pub(crate) fn remove_watch(&self) {
        let before = self.watches.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "more watches were dropped than created");
    }

    /// Wakes all waiting tasks: the frontier moved, or never moves again.
    pub(crate) fn wake(&self) {
        if self.is_watched() {
            let wakers = std::mem::take(&mut *self.wakers.lock());
            wakers.into_iter().for_each(wake);
        }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watches.load(SeqCst) > 0
    }

    pub(crate) fn register(&self, waker: &Waker) {
        // Cloned before the lock is taken, and dropped after its release: a waker is the caller's
        // code.
        let waker = waker.clone();
        let mut wakers = self.wakers.lock();
        if !wakers.iter().any(|known| known.will_wake(&waker)) {
            wakers.push(waker);
        }
    }
}
