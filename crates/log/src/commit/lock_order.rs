//! The order in which the locks of an open log are taken.
//!
//! `segment_set_lock`, then `reserve`, then `watermark_page`, then `state`; each alone or in this
//! order. While `state` is held, only the locks of the tail cache, of a segment's table entry, of
//! the preallocator, of the terminal cell, of the wait queues and of the engine's queues are taken,
//! and no I/O is done. The locks of the manifest, the spares and the ages are taken without
//! `state`.

use esker_disk::process;
use parking_lot::MutexGuard;

use crate::commit::write_half::{State, WriteHalf};
use crate::runtime::deferred_wakes::DeferredWakes;

/// The lock of the set of segments. When it is released, a request for space that waited for that
/// is queued again: what changed may have freed some.
#[derive(Debug)]
pub(crate) struct ChangingSegments<'a> {
    log: &'a WriteHalf,
    lock: Option<MutexGuard<'a, ()>>,
    // Dropped after the lock.
    _wakes: DeferredWakes,
}

impl<'a> ChangingSegments<'a> {
    fn new(log: &'a WriteHalf, lock: MutexGuard<'a, ()>) -> Self {
        Self { log, lock: Some(lock), _wakes: DeferredWakes::new() }
    }
}

impl Drop for ChangingSegments<'_> {
    fn drop(&mut self) {
        self.lock = None;
        self.log.retry_space();
    }
}

impl WriteHalf {
    /// Takes the lock of the state. It is never held across I/O.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        debug_assert!(!process::is_forked(), "a thread that is not here may hold the lock");
        self.state.lock()
    }

    /// Takes the lock of the set of segments, or waits for it.
    pub(crate) fn change_segments(&self) -> ChangingSegments<'_> {
        ChangingSegments::new(self, self.segments.lock())
    }

    /// As [`WriteHalf::change_segments`], or `None` where another thread has the lock.
    pub(crate) fn try_change_segments(&self) -> Option<ChangingSegments<'_>> {
        Some(ChangingSegments::new(self, self.segments.try_lock()?))
    }
}
