//! What all operations meet at: the promise, and who may decide about a slot.
//!
//! Each slot has one of a few locks, and each lock keeps the promise beside it. An operation on a single
//! slot holds that slot's lock and nothing else, and reads the promise there; whatever raises the promise,
//! or concerns more than a slot, holds all of them. Either way it holds them over the decision and the
//! append, so that the order of the records is the order of the decisions.
//!
//! So those on different slots share nothing, not even a count of how many they are. All locks are taken
//! in one order, and whoever holds one asks for no other.

use crate::base::ballot::Ballot;
use crate::base::sync::{FairMutex, FairMutexGuard};

/// Locks of slots, by slot. All of them together take a microsecond.
const LOCKS: usize = 64;

/// What a decision needs to know, whichever slot it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PromiseState {
    pub(crate) promise: Ballot,
    pub(crate) closed: bool,
}

/// A lock with what it guards, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Lock(FairMutex<PromiseState>);

#[derive(Debug)]
pub(crate) struct SlotLocks<const N: usize = LOCKS> {
    locks: [Lock; N],
}

/// The lock of a slot, held.
pub(crate) type SlotGuard<'a> = FairMutexGuard<'a, PromiseState>;

/// All locks, held.
#[derive(Debug)]
pub(crate) struct AllLocks<'a, const N: usize = LOCKS>([FairMutexGuard<'a, PromiseState>; N]);

impl<const N: usize> SlotLocks<N> {
    pub(crate) fn new() -> Self {
        let promise_state = PromiseState { promise: Ballot::ZERO, closed: false };
        Self { locks: std::array::from_fn(|_| Lock(FairMutex::new(promise_state))) }
    }

    /// For an operation on one slot.
    #[inline]
    pub(crate) fn of_slot(&self, slot: u64) -> SlotGuard<'_> {
        self.locks[(slot % N as u64) as usize].0.lock()
    }

    /// For what concerns more than a slot. The caller holds no slot's lock.
    pub(crate) fn lock_all(&self) -> AllLocks<'_, N> {
        AllLocks(std::array::from_fn(|n| self.locks[n].0.lock()))
    }

    /// Returns when every operation that holds a slot's lock now has released it. It takes one lock at
    /// a time, so a caller waits for it no longer than for another caller.
    pub(crate) fn pass(&self) {
        self.locks.iter().for_each(|lock| drop(lock.0.lock()));
    }

    /// The promise as it is now.
    pub(crate) fn promised(&self) -> Ballot {
        self.of_slot(0).promise
    }
}

impl<const N: usize> AllLocks<'_, N> {
    pub(crate) fn promise_state(&self) -> PromiseState {
        *self.0[0]
    }

    pub(crate) fn promise(&mut self, ballot: Ballot) {
        self.0.iter_mut().for_each(|promise_state| promise_state.promise = ballot);
    }

    pub(crate) fn close(&mut self) {
        self.0.iter_mut().for_each(|promise_state| promise_state.closed = true);
    }
}
