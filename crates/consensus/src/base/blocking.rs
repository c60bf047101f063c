//! Waiting for a future on a thread that may block.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits until the future is ready.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Some(output) = block_until(None, future.as_mut()) {
            return output;
        }
    }
}

/// Waits until the future is ready, or until the deadline, and then returns `None`.
pub(crate) fn block_until<T>(
    deadline: Option<Instant>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        match deadline.map(|deadline| deadline.checked_duration_since(Instant::now())) {
            Some(None) => return None,
            Some(Some(left)) => std::thread::park_timeout(left),
            None => std::thread::park(),
        }
    }
}
