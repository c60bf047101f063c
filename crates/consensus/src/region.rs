//! The mutable region: room for values that are accepted and not committed.
//!
//! It is a budget and not a ring. Whoever accepts *reserves* bytes, *writes* the value to memory of
//! its own, and *publishes* it in its slot by one store of a pointer. A value that leaves gives its
//! bytes back at once, whichever came before it, so that one old slot never holds up the others; and
//! a pointer is not given to anybody else while somebody may still look (see `cell`), so that there is
//! no place whose meaning changes under a reader.

use std::time::Instant;

use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering::SeqCst, fence};

/// The least that a value counts, so that empty ones are bounded too.
const LEAST: u64 = 64;

/// What a value of this length counts.
pub(crate) fn charge(len: usize) -> u64 {
    (len as u64).max(LEAST)
}

/// A budget of bytes, with a bounded wait for room.
#[derive(Debug)]
pub(crate) struct Region {
    size: u64,
    used: AtomicU64,
    /// Threads that wait for room, or are about to.
    waiting: AtomicU64,
    closed: AtomicBool,
    lock: Mutex<()>,
    room: Condvar,
}

impl Region {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            size,
            used: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            lock: Mutex::new(()),
            room: Condvar::new(),
        }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(SeqCst)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Takes the bytes if they are free.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let mut used = self.used.load(SeqCst);
        while used.checked_add(bytes).is_some_and(|sum| sum <= self.size) {
            match self.used.compare_exchange_weak(used, used + bytes, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(now) => used = now,
            }
        }
        false
    }

    /// Takes the bytes whether they are free or not: for what recovery found.
    pub(crate) fn force(&self, bytes: u64) {
        self.used.fetch_add(bytes, SeqCst);
    }

    /// Gives bytes back, and wakes whoever waits for them.
    pub(crate) fn release(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.used.fetch_sub(bytes, SeqCst);
        // Against that of a waiter: one of the two sees the other.
        fence(SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            self.wake();
        }
    }

    /// Nobody waits any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // Under the lock, so that a waiter is either before its last look or asleep.
        drop(self.lock.lock());
        self.room.notify_all();
    }

    /// Whether so many bytes would be free now.
    fn fits(&self, bytes: u64) -> bool {
        self.used.load(SeqCst).saturating_add(bytes) <= self.size
    }

    /// Waits until that much room was seen, or the deadline; `false` when the deadline passed.
    pub(crate) fn wait(&self, bytes: u64, deadline: Instant) -> bool {
        self.waiting.fetch_add(1, SeqCst);
        fence(SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let fits = loop {
            if self.fits(bytes) || self.closed.load(SeqCst) {
                break true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { break false };
            let waited = self.room.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        };
        drop(guard);
        self.waiting.fetch_sub(1, SeqCst);
        fits
    }
}
