//! Waiting on a thread: its waker, and parking.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

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

/// The waker of this thread, made once.
pub(crate) fn thread_waker() -> Waker {
    // A thread that is being torn down has no thread-local waker any more; it gets a new one.
    PARKED
        .try_with(Waker::clone)
        .unwrap_or_else(|_| Arc::new(Unpark(std::thread::current())).into())
}

/// Whether a waker is one of [`thread_waker`], of any thread.
pub(crate) fn is_of_a_thread(waker: &Waker) -> bool {
    PARKED.try_with(|parked| std::ptr::eq(parked.vtable(), waker.vtable())).unwrap_or(false)
}

/// Parks until woken or until the deadline. Returns `false` once the deadline has passed.
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
