//! Waking tasks, at once or when a component has released its locks.
//!
//! A waker is the caller's code: it may call the component, or drop its last handle, which closes
//! it. A thread that appends may run a commit, and then wakes the tasks that wait for that. So a
//! component that calls the log under a lock of its own, or wakes tasks of its own there, has the
//! wakes wait for the release.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::runtime::parked_thread::is_of_a_thread;

thread_local! {
    /// The number of [`DeferredWakes`] of this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Whether a waker was collected since they were woken last.
    static HAS_COLLECTED: Cell<bool> = const { Cell::new(false) };
    static COLLECTED: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// Has the tasks that calls on this thread wake woken when it is dropped; with several of them,
/// when the last one is dropped. So are the callbacks of tickets called, where the engine is
/// stopped. Threads that wait in a call of the log are woken at once.
///
/// Hold it as long as a lock that a waker may take, and drop it after that lock: as a field after
/// the guard of the lock. Create it neither where many commits are waited for, since the tasks that
/// wait for these wait on, nor across an `await`.
///
/// # Examples
/// ```
/// use std::sync::{Mutex, MutexGuard};
/// use esker_log::component::DeferredWakes;
///
/// struct Index;
/// struct LockedIndex<'a> {
///     index: MutexGuard<'a, Index>,
///     // Dropped after the guard.
///     _wakes: DeferredWakes,
/// }
///
/// let index = Mutex::new(Index);
/// let locked = LockedIndex { index: index.lock().unwrap(), _wakes: DeferredWakes::new() };
/// drop(locked); // releases the lock, and then wakes
/// ```
#[derive(Debug)]
#[must_use = "tasks are woken when it is dropped"]
pub struct DeferredWakes {
    /// It counts for this thread alone.
    not_send: PhantomData<*const ()>,
}

impl DeferredWakes {
    /// Defers the wakes of this thread from now on.
    #[inline]
    pub fn new() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self { not_send: PhantomData }
    }
}

impl Default for DeferredWakes {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for DeferredWakes {
    #[inline]
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 && HAS_COLLECTED.get() {
            wake_collected();
        }
    }
}

#[cold]
fn wake_collected() {
    HAS_COLLECTED.set(false);
    let mut wakers = COLLECTED.try_with(RefCell::take).unwrap_or_default();
    wakers.drain(..).for_each(wake_now);
    // Kept for the next time, unless one of them collected others meanwhile.
    let _ = COLLECTED.try_with(|collected| {
        let mut collected = collected.borrow_mut();
        if collected.capacity() == 0 {
            *collected = wakers;
        }
    });
}

/// Wakes a task, at once or as [`DeferredWakes`] says. A waker that panics affects neither the call
/// that wakes it nor the tasks that are woken after it.
pub fn wake(waker: Waker) {
    match DEPTH.get() > 0 && !is_of_a_thread(&waker) {
        true => collect(waker),
        false => wake_now(waker),
    }
}

/// Wakes the threads among these, and then the tasks, and empties the list. The waker of a task is
/// the caller's code, and may take long.
pub(crate) fn wake_threads_first(wakers: &mut Vec<Waker>) {
    wakers.retain(|waker| {
        let is_of_a_thread = is_of_a_thread(waker);
        if is_of_a_thread {
            waker.wake_by_ref();
        }
        !is_of_a_thread
    });
    wakers.drain(..).for_each(wake);
}

#[cold]
fn collect(waker: Waker) {
    let mut waker = Some(waker);
    // A thread that is being torn down has no list any more.
    if COLLECTED.try_with(|collected| collected.borrow_mut().extend(waker.take())).is_ok() {
        HAS_COLLECTED.set(true);
    }
    waker.into_iter().for_each(wake_now);
}

fn wake_now(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("a waker panicked; the task that it belongs to was not woken");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    use super::*;
    use crate::runtime::parked_thread::thread_waker;

    /// Counts its wakes, and defers its own again.
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            let _deferred = DeferredWakes::new();
            if self.0.fetch_add(1, SeqCst) == 0 {
                wake(Waker::from(Arc::clone(&self)));
                assert_eq!(self.0.load(SeqCst), 1);
            }
        }
    }

    #[test]
    fn tasks_are_woken_when_the_outermost_is_dropped_and_threads_at_once() {
        let count = Arc::new(Counter(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let outer = DeferredWakes::new();
        let inner = DeferredWakes::new();
        wake(waker.clone());
        wake(thread_waker());
        std::thread::park();
        drop(inner);
        assert_eq!(count.0.load(SeqCst), 0);
        drop(outer);
        assert_eq!(count.0.load(SeqCst), 2, "and again, by itself");
        wake(waker);
        assert_eq!(count.0.load(SeqCst), 3);
    }

    #[test]
    fn a_panic_while_wakes_are_deferred_loses_none() {
        let count = Arc::new(Counter(AtomicUsize::new(1)));
        let waker = Waker::from(Arc::clone(&count));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _deferred = DeferredWakes::new();
            wake(waker);
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(count.0.load(SeqCst), 2);
    }
}
