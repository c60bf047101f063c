//! The mutable region: a budget of bytes for values that are accepted and not committed.
//!
//! The region is a budget, not a ring. An accept *reserves* bytes, *writes* the value to memory of
//! its own, and *publishes* it in its slot by one pointer store. A value that is removed releases
//! its bytes at once, whatever the order, so that one old slot never blocks the others. Memory is
//! not reused while a reader may still use it (see `cell`), so no address changes its meaning under
//! a reader.

use std::task::Waker;
use std::time::Instant;

use crate::base::sync::{
    AtomicU64, Condvar, Mutex, MutexGuard, Ordering::AcqRel, Ordering::Acquire,
};
use crate::base::wake::wake;

/// The least charge of a value, so that empty values are bounded too.
const CHARGE_MIN_BYTES: u64 = 64;

/// The charge of a value of this length.
pub(crate) fn charge(len: usize) -> u64 {
    (len as u64).max(CHARGE_MIN_BYTES)
}

/// Flags above the bytes in the word. `AWAITED_FLAG`: a caller waits for room, or is about to.
/// `CLOSED_FLAG`: waiting has ended for good.
const AWAITED_FLAG: u64 = 1 << 63;
const CLOSED_FLAG: u64 = 1 << 62;
const USED_MASK: u64 = CLOSED_FLAG - 1;

const _: () =
    assert!(AWAITED_FLAG & CLOSED_FLAG == 0 && (AWAITED_FLAG | CLOSED_FLAG) & USED_MASK == 0);

/// A budget of bytes, with a bounded wait for room.
///
/// One word holds the used bytes and the flag that a caller waits. A release learns of a waiter
/// from its own subtraction. A waiter sets the flag and reads the count in one operation. All
/// changes of one word have one order, so that one of the two sees the other, and no fence is
/// needed.
#[derive(Debug)]
pub(crate) struct ValueBudget {
    size: u64,
    used: AtomicU64,
    tasks: Mutex<Tasks>,
    room: Condvar,
}

/// The tasks that wait for room.
#[derive(Debug, Default)]
struct Tasks {
    wakers: Vec<(u64, Waker)>,
    /// The number of the last task that waited.
    last: u64,
}

/// A task that may wait for room. It no longer waits when this is dropped.
#[derive(Debug)]
pub(crate) struct RoomWaiter<'a> {
    budget: &'a ValueBudget,
    /// `None` before it has waited, so that a task that finds room takes no lock.
    number: Option<u64>,
}

impl ValueBudget {
    pub(crate) fn new(size: u64) -> Self {
        let size = size.min(USED_MASK / 2);
        Self {
            size,
            used: AtomicU64::new(0),
            tasks: Mutex::new(Tasks::default()),
            room: Condvar::new(),
        }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Acquire) & USED_MASK
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    fn fits(&self, word: u64, bytes: u64) -> bool {
        (word & USED_MASK).saturating_add(bytes) <= self.size
    }

    /// Reserves the bytes if they are free.
    #[inline]
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let mut word = self.used.load(Acquire);
        while self.fits(word, bytes) {
            match self.used.compare_exchange_weak(word, word + bytes, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Reserves the bytes whether or not they are free: for entries that recovery found.
    pub(crate) fn force(&self, bytes: u64) {
        self.used.fetch_add(bytes, AcqRel);
    }

    /// Releases bytes, and wakes the callers that wait for them.
    #[inline]
    pub(crate) fn release(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let before = self.used.fetch_sub(bytes, AcqRel);
        debug_assert!(before & USED_MASK >= bytes, "more bytes are released than reserved");
        if before & AWAITED_FLAG != 0 {
            self.wake();
        }
    }

    /// Ends all waiting, now and in the future.
    pub(crate) fn close(&self) {
        self.used.fetch_or(CLOSED_FLAG, AcqRel);
        self.wake();
    }

    /// Wakes all waiters. Takes the lock, so that each waiter is either before its check or asleep.
    #[cold]
    fn wake(&self) {
        let mut tasks = self.tasks();
        self.used.fetch_and(!AWAITED_FLAG, AcqRel);
        let wakers = std::mem::take(&mut tasks.wakers);
        drop(tasks);
        self.room.notify_all();
        wakers.into_iter().for_each(|(_, waker)| wake(waker));
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns a waiter for a task. Registers nothing yet.
    pub(crate) fn waiter(&self) -> RoomWaiter<'_> {
        RoomWaiter { budget: self, number: None }
    }

    /// Waits until this many bytes are free or the budget is closed. Returns `false` if the
    /// deadline passed first.
    pub(crate) fn wait(&self, bytes: u64, deadline: Instant) -> bool {
        let mut guard = self.tasks();
        loop {
            let word = self.used.fetch_or(AWAITED_FLAG, AcqRel);
            if self.fits(word, bytes) || word & CLOSED_FLAG != 0 {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            let waited = self.room.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

impl RoomWaiter<'_> {
    /// Returns whether this many bytes are free or the budget is closed. If not, the task is woken
    /// when bytes are released.
    pub(crate) fn has_room(&mut self, bytes: u64, waker: &Waker) -> bool {
        // Cloned and dropped without the lock: a waker is the caller's code.
        let waker = waker.clone();
        let mut tasks = self.budget.tasks();
        let number = *self.number.get_or_insert_with(|| {
            tasks.last += 1;
            tasks.last
        });
        let mut replaced = tasks.take(number);
        tasks.wakers.push((number, waker));
        let word = self.budget.used.fetch_or(AWAITED_FLAG, AcqRel);
        let has_room = self.budget.fits(word, bytes) || word & CLOSED_FLAG != 0;
        if has_room {
            replaced = tasks.take(number);
        }
        drop(tasks);
        drop(replaced);
        has_room
    }
}

impl Drop for RoomWaiter<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        // Dropped without the lock: a waker is the caller's code.
        let taken = self.budget.tasks().take(number);
        drop(taken);
    }
}

impl Tasks {
    fn take(&mut self, number: u64) -> Option<Waker> {
        let at = self.wakers.iter().position(|(other, _)| *other == number)?;
        Some(self.wakers.swap_remove(at).1)
    }
}
