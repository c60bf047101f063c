//! Slot locks as operations hold them: the tasks that an operation wakes are woken after it
//! released its locks. A waker is the caller's code, and may call the log.

use std::ops::{Deref, DerefMut};

use esker_log::component::DeferredWakes;

use crate::index::slot_locks::{AllLocks, PromiseState, SlotGuard};

/// A held slot lock.
#[derive(Debug)]
pub(crate) struct HeldSlot<'a> {
    promise_state: SlotGuard<'a>,
    // Dropped after the lock.
    _wakes: DeferredWakes,
}

impl<'a> HeldSlot<'a> {
    #[inline]
    pub(crate) fn new(promise_state: SlotGuard<'a>) -> Self {
        Self { promise_state, _wakes: DeferredWakes::new() }
    }
}

impl Deref for HeldSlot<'_> {
    type Target = PromiseState;

    #[inline]
    fn deref(&self) -> &PromiseState {
        &self.promise_state
    }
}

/// All slot locks, held.
#[derive(Debug)]
pub(crate) struct HeldSlots<'a> {
    locks: AllLocks<'a>,
    // Dropped after the locks.
    _wakes: DeferredWakes,
}

impl<'a> HeldSlots<'a> {
    pub(crate) fn new(locks: AllLocks<'a>) -> Self {
        Self { locks, _wakes: DeferredWakes::new() }
    }
}

impl<'a> Deref for HeldSlots<'a> {
    type Target = AllLocks<'a>;

    fn deref(&self) -> &AllLocks<'a> {
        &self.locks
    }
}

impl DerefMut for HeldSlots<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.locks
    }
}
