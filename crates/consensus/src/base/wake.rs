//! Waking tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes a task. A waker is the caller's code: if it panics, neither the call that woke it nor the
/// tasks that are woken later are affected.
pub(crate) fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("a waker panicked; the task that it belongs to was not woken");
    }
}
