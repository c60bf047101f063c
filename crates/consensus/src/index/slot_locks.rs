//! Slot locks: they order the decisions, and hold the promise.
//!
//! Each slot maps to one of `LOCK_COUNT` locks, and each lock holds the promise. An operation on a
//! single slot holds only that slot's lock, and reads the promise there. An operation that raises
//! the promise, or concerns more than one slot, holds all of them. Both hold them during the
//! decision and the append, so that the order of the records is the order of the decisions.
//!
//! So operations under different locks share no memory, not even a counter. All locks are acquired
//! in one order, and an operation that holds one acquires no other.

use crate::base::ballot::Ballot;
use crate::base::sync::{FairMutex, FairMutexGuard};

/// The number of slot locks. Acquiring all of them takes a microsecond.
const LOCK_COUNT: usize = 64;

const _: () = assert!(LOCK_COUNT.is_power_of_two());

/// The state that every decision needs, whatever its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PromiseState {
    /// The highest ballot that was promised; [`Ballot::ZERO`] before the first promise, which
    /// refuses as much as a promise of it. An `Option` here would slow down every accept.
    pub(crate) promise: Ballot,
    /// Whether a promise was given.
    pub(crate) is_promised: bool,
    /// Whether a record has the promise. In volatile mode an accept may raise it without one.
    pub(crate) is_recorded: bool,
    pub(crate) closed: bool,
}

impl PromiseState {
    pub(crate) fn promised(&self) -> Option<Ballot> {
        self.is_promised.then_some(self.promise)
    }
}

/// A lock with the state that it guards, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct PaddedLock(FairMutex<PromiseState>);

#[derive(Debug)]
pub(crate) struct SlotLocks<const N: usize = LOCK_COUNT> {
    locks: [PaddedLock; N],
}

/// A held slot lock.
pub(crate) type SlotGuard<'a> = FairMutexGuard<'a, PromiseState>;

/// All slot locks, held.
#[derive(Debug)]
pub(crate) struct AllLocks<'a, const N: usize = LOCK_COUNT>([FairMutexGuard<'a, PromiseState>; N]);

impl<const N: usize> SlotLocks<N> {
    pub(crate) fn new() -> Self {
        let promise_state = PromiseState {
            promise: Ballot::ZERO,
            is_promised: false,
            is_recorded: true,
            closed: false,
        };
        Self { locks: std::array::from_fn(|_| PaddedLock(FairMutex::new(promise_state))) }
    }

    /// Acquires the lock of a slot, for an operation on that slot alone.
    #[inline]
    pub(crate) fn lock_slot(&self, slot: u64) -> SlotGuard<'_> {
        self.locks[(slot % N as u64) as usize].0.lock()
    }

    /// Acquires all locks, for an operation on more than one slot. The caller holds no slot lock.
    pub(crate) fn lock_all(&self) -> AllLocks<'_, N> {
        AllLocks(std::array::from_fn(|n| self.locks[n].0.lock()))
    }

    /// Returns when every operation that holds a slot lock now has released it. It acquires one
    /// lock at a time, so a caller waits for it no longer than for another caller.
    pub(crate) fn pass(&self) {
        self.locks.iter().for_each(|lock| drop(lock.0.lock()));
    }

    /// The current promise.
    pub(crate) fn promised(&self) -> Option<Ballot> {
        self.lock_slot(0).promised()
    }
}

impl<const N: usize> AllLocks<'_, N> {
    pub(crate) fn promise_state(&self) -> PromiseState {
        debug_assert!(self.0.iter().all(|state| **state == *self.0[0]), "slot locks disagree");
        *self.0[0]
    }

    /// Raises the promise, which a record has if `is_recorded`.
    pub(crate) fn promise(&mut self, ballot: Ballot, is_recorded: bool) {
        debug_assert!(ballot >= self.0[0].promise, "a promise is lowered");
        self.0.iter_mut().for_each(|promise_state| {
            (promise_state.promise, promise_state.is_promised) = (ballot, true);
            promise_state.is_recorded = is_recorded;
        });
    }

    pub(crate) fn close(&mut self) {
        self.0.iter_mut().for_each(|promise_state| promise_state.closed = true);
    }
}
