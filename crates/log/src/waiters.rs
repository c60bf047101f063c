//! Who waits for what, and waking exactly those whose time has come.
//!
//! A waiter looks, registers, and looks again; the committer publishes first and wakes after. So
//! whichever comes second sees the other, and no wake-up is lost.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slab::Slab;

/// What a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// The log to be durable up to this number.
    Durable(u64),
    /// Room for another record.
    Room,
}

#[derive(Debug)]
struct Waiter {
    what: For,
    /// `None` once woken.
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    list: Mutex<Slab<Waiter>>,
}

/// A place in the list. Given back by [`Waiters::remove`].
pub(crate) type Key = usize;

impl Waiters {
    /// Puts a waiter on the list, or renews the one that is there.
    pub(crate) fn register(&self, key: &mut Option<Key>, what: For, waker: &Waker) {
        let mut list = self.list.lock();
        if let Some(waiter) = key.and_then(|key| list.get_mut(key)) {
            if !waiter.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
                waiter.waker = Some(waker.clone());
            }
            waiter.what = what;
            return;
        }
        *key = Some(list.insert(Waiter { what, waker: Some(waker.clone()) }));
    }

    pub(crate) fn remove(&self, key: Key) {
        // Dropped without the lock: a waker is somebody else's code.
        let removed = self.list.lock().try_remove(key);
        drop(removed);
    }

    /// Moves the wakers of all whose time has come to `into`, to be woken without the lock.
    pub(crate) fn take(&self, durable: u64, room: bool, into: &mut Vec<Waker>) {
        let mut list = self.list.lock();
        for (_, waiter) in list.iter_mut() {
            let due = match waiter.what {
                For::Durable(seq) => seq <= durable,
                For::Room => room,
            };
            if due {
                into.extend(waiter.waker.take());
            }
        }
    }

    /// Moves every waker to `into`.
    pub(crate) fn take_all(&self, into: &mut Vec<Waker>) {
        self.take(u64::MAX, true, into);
    }

    pub(crate) fn len(&self) -> usize {
        self.list.lock().len()
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static PARKED: Waker = Arc::new(Unpark(std::thread::current())).into();
}

/// This thread's waker, made once.
pub(crate) fn thread_waker() -> Waker {
    // A thread that is being torn down has no waker of its own any more; it gets a fresh one.
    PARKED
        .try_with(Waker::clone)
        .unwrap_or_else(|_| Arc::new(Unpark(std::thread::current())).into())
}

/// Parks until woken, or the deadline. `false` once the deadline has passed.
pub(crate) fn park(deadline: Option<Instant>) -> bool {
    match deadline {
        None => std::thread::park(),
        Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
            None | Some(Duration::ZERO) => return false,
            Some(left) => std::thread::park_timeout(left),
        },
    }
    true
}
