//! The mutable region: room for values that are accepted and not committed.
//!
//! It is a budget and not a ring. Whoever accepts *reserves* bytes, *writes* the value to memory of
//! its own, and *publishes* it in its slot by one store of a pointer. A value that leaves gives its
//! bytes back at once, whichever came before it, so that one old slot never holds up the others; and
//! a pointer is not given to anybody else while somebody may still look (see `cell`), so that there is
//! no place whose meaning changes under a reader.

use std::time::Instant;

use crate::base::sync::{AtomicU64, Condvar, Mutex, Ordering::AcqRel, Ordering::Acquire};

/// The least that a value counts, so that empty ones are bounded too.
const LEAST: u64 = 64;

/// What a value of this length counts.
pub(crate) fn charge(len: usize) -> u64 {
    (len as u64).max(LEAST)
}

/// Bits of the word beside the bytes: somebody waits for room, or is about to; nobody may any more.
const AWAITED: u64 = 1 << 63;
const CLOSED: u64 = 1 << 62;
const BYTES: u64 = CLOSED - 1;

/// A budget of bytes, with a bounded wait for room.
///
/// Whether somebody waits stands in the same word as what is used: whoever gives bytes back learns it
/// by the same subtraction, and a waiter says so and looks by one operation. All changes of one word
/// have one order, so that one of the two sees the other, and neither needs a fence.
#[derive(Debug)]
pub(crate) struct ValueBudget {
    size: u64,
    used: AtomicU64,
    lock: Mutex<()>,
    room: Condvar,
}

impl ValueBudget {
    pub(crate) fn new(size: u64) -> Self {
        let size = size.min(BYTES / 2);
        Self { size, used: AtomicU64::new(0), lock: Mutex::new(()), room: Condvar::new() }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Acquire) & BYTES
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    fn fits(&self, word: u64, bytes: u64) -> bool {
        (word & BYTES).saturating_add(bytes) <= self.size
    }

    /// Takes the bytes if they are free.
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

    /// Takes the bytes whether they are free or not: for what recovery found.
    pub(crate) fn force(&self, bytes: u64) {
        self.used.fetch_add(bytes, AcqRel);
    }

    /// Gives bytes back, and wakes whoever waits for them.
    #[inline]
    pub(crate) fn release(&self, bytes: u64) {
        if bytes > 0 && self.used.fetch_sub(bytes, AcqRel) & AWAITED != 0 {
            self.wake();
        }
    }

    /// Nobody waits any more.
    pub(crate) fn close(&self) {
        self.used.fetch_or(CLOSED, AcqRel);
        self.wake();
    }

    /// Under the lock, so that a waiter is either before its look or asleep.
    #[cold]
    fn wake(&self) {
        let guard = self.lock.lock();
        self.used.fetch_and(!AWAITED, AcqRel);
        drop(guard);
        self.room.notify_all();
    }

    /// Waits until that much room was seen, or the deadline; `false` when the deadline passed.
    pub(crate) fn wait(&self, bytes: u64, deadline: Instant) -> bool {
        let mut guard = self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        loop {
            let word = self.used.fetch_or(AWAITED, AcqRel);
            if self.fits(word, bytes) || word & CLOSED != 0 {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            let waited = self.room.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}
