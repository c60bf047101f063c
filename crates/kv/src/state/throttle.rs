//! Holds up writers while cleaning is behind.
//!
//! When more space is used than the bound allows, the gate closes once for each megabyte that is
//! written. It opens when cleaning has done its next step. A caller that blocks opens it itself
//! after [`BLOCKING_WAIT_MAX`]; a future has no clock, and waits for cleaning alone. So writers
//! continue at the pace of cleaning. While cleaning itself waits, for a snapshot or a backup, and
//! while it walks the index or writes a checkpoint, it opens the gate again and again.
//!
//! A caller checks the gate under the lock of `waiting` before it waits. Who opens the gate stores
//! that first, and takes the lock and wakes after. So no caller misses it.

use std::future::Future;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, wake};
use crate::sync::{Ordering::Relaxed, Ordering::SeqCst};

/// The longest time that a blocking call waits.
pub(crate) const BLOCKING_WAIT_MAX: Duration = Duration::from_millis(20);
/// The bytes of the log for which the gate closes at most once.
const STEP_BYTES: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Throttle {
    closed: AtomicBool,
    /// The step of the log when the gate was last considered.
    step: AtomicU64,
    waiting: Mutex<WaitQueue>,
    opened: Condvar,
    /// The number of times that the gate was closed.
    times: AtomicU64,
    /// The microseconds that callers waited, all together.
    waited: AtomicU64,
}

/// The futures that wait.
#[derive(Debug, Default)]
struct WaitQueue {
    wakers: Vec<Waker>,
    /// The number of times that the wakers were taken.
    taken: u64,
}

/// The slot of a future's waker: the value of [`WaitQueue::taken`], and an index.
type WakerSlot = (u64, usize);

impl WaitQueue {
    /// Registers a waker, once for each future. Returns one that is not needed.
    fn register(&mut self, slot: &mut Option<WakerSlot>, waker: Waker) -> Option<Waker> {
        let registered = slot.filter(|(taken, _)| *taken == self.taken);
        debug_assert!(registered.is_none_or(|(_, index)| index < self.wakers.len()));
        match registered.and_then(|(_, index)| self.wakers.get_mut(index)) {
            Some(old) if old.will_wake(&waker) => Some(waker),
            Some(old) => Some(std::mem::replace(old, waker)),
            None => {
                *slot = Some((self.taken, self.wakers.len()));
                self.wakers.push(waker);
                None
            }
        }
    }

    fn take(&mut self) -> Vec<Waker> {
        self.taken += 1;
        std::mem::take(&mut self.wakers)
    }
}

impl Throttle {
    fn lock(&self) -> MutexGuard<'_, WaitQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the gate if `is_behind`, which is asked once for each step of the log, unless no pass
    /// will open it: cleaning opens it after it stopped. Returns whether it was closed for the
    /// first time.
    #[inline]
    pub(crate) fn consider(
        &self,
        offset: u64,
        is_behind: impl FnOnce() -> bool,
        is_running: impl FnOnce() -> bool,
    ) -> bool {
        let (step, last) = (offset / STEP_BYTES, self.step.load(Relaxed));
        if step <= last
            || self.step.compare_exchange(last, step, Relaxed, Relaxed).is_err()
            || !is_behind()
        {
            return false;
        }
        let is_first = self.times.fetch_add(1, Relaxed) == 0;
        self.closed.store(true, SeqCst);
        if !is_running() {
            self.open();
        }
        is_first
    }

    /// Lets all callers continue.
    pub(crate) fn open(&self) {
        if self.closed.swap(false, SeqCst) {
            let wakers = self.lock().take();
            self.opened.notify_all();
            wakers.into_iter().for_each(wake);
        }
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Blocks while the gate is closed, for [`BLOCKING_WAIT_MAX`] at most. Then opens it for all.
    #[cold]
    pub(crate) fn blocking_wait(&self) {
        self.blocking_wait_at_most(BLOCKING_WAIT_MAX);
    }

    pub(crate) fn blocking_wait_at_most(&self, most: Duration) {
        let began = Instant::now();
        let mut waiting = self.lock();
        while self.closed.load(SeqCst) {
            let left = most.saturating_sub(began.elapsed());
            if left.is_zero() {
                drop(waiting);
                self.open();
                break;
            }
            let waited = self.opened.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.waited.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
    }

    /// Waits until the gate is open.
    pub(crate) fn wait(&self) -> impl Future<Output = ()> {
        ThrottleWait { throttle: self, began: None, slot: None }
    }

    /// The number of times that the gate was closed, and the sum of the time that callers waited.
    pub(crate) fn counts(&self) -> (u64, Duration) {
        (self.times.load(Relaxed), Duration::from_micros(self.waited.load(Relaxed)))
    }
}

/// A future that is ready when the gate is open.
struct ThrottleWait<'a> {
    throttle: &'a Throttle,
    began: Option<Instant>,
    slot: Option<WakerSlot>,
}

impl Future for ThrottleWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let throttle = self.throttle;
        if throttle.is_closed() {
            // Cloned and dropped without the lock: a waker is the caller's code.
            let waker = cx.waker().clone();
            let mut waiting = throttle.lock();
            // Under the lock: who opens the gate takes the wakers after that.
            if throttle.closed.load(SeqCst) {
                let unused = waiting.register(&mut self.slot, waker);
                drop(waiting);
                drop(unused);
                self.began.get_or_insert_with(Instant::now);
                return Poll::Pending;
            }
        }
        if let Some(began) = self.began.take() {
            throttle.waited.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        }
        Poll::Ready(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_gate_closes_once_for_a_step_and_opens_by_itself() {
        let throttle = Throttle::default();
        assert!(!throttle.consider(STEP_BYTES - 1, || true, || true));
        assert!(!throttle.is_closed(), "less than a step was written");
        assert!(throttle.consider(STEP_BYTES, || true, || true), "for the first time");
        assert!(throttle.is_closed());
        throttle.blocking_wait();
        assert!(!throttle.is_closed());
        throttle.consider(STEP_BYTES + 1, || true, || true);
        assert!(!throttle.is_closed(), "it was considered for this step");
        throttle.consider(2 * STEP_BYTES, || false, || true);
        assert!(!throttle.is_closed(), "cleaning is not behind");
        assert!(!throttle.consider(3 * STEP_BYTES, || true, || false), "for the second time");
        assert!(!throttle.is_closed(), "no pass would open it");
        let (times, waited) = throttle.counts();
        assert!(times == 2 && waited >= BLOCKING_WAIT_MAX, "{times} {waited:?}");
    }

    #[test]
    fn opening_wakes_all_who_wait() {
        let throttle = Arc::new(Throttle::default());
        throttle.consider(STEP_BYTES, || true, || true);
        let (done, awaited) = std::sync::mpsc::channel();
        let waiting: Vec<_> = (0..4)
            .map(|n| {
                let (throttle, done) = (Arc::clone(&throttle), done.clone());
                std::thread::spawn(move || {
                    match n % 2 {
                        0 => throttle.blocking_wait(),
                        _ => pollster(throttle.wait()),
                    }
                    done.send(()).unwrap_or_default();
                })
            })
            .collect();
        while throttle.lock().wakers.len() < 2 && throttle.is_closed() {
            std::thread::yield_now();
        }
        throttle.open();
        for _ in 0..4 {
            assert!(
                awaited.recv_timeout(Duration::from_secs(10)).is_ok(),
                "every caller continues"
            );
        }
        assert!(waiting.into_iter().all(|thread| thread.join().is_ok()));
    }

    /// A future may be polled any number of times, and by several tasks.
    #[test]
    fn a_future_has_one_waker() {
        struct Count(AtomicU64);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let throttle = Throttle::default();
        let counts = [0; 3].map(|_| Arc::new(Count(AtomicU64::new(0))));
        let mut futures = [0; 2].map(|_| Box::pin(throttle.wait()));
        let mut poll = |future: usize, task: usize| {
            let waker = Arc::clone(&counts[task]).into();
            futures[future].as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        };
        for (step, registered) in [(1, [[0, 0], [1, 0], [0, 2]]), (2, [[1, 1], [0, 1], [0, 1]])] {
            throttle.consider(step * STEP_BYTES, || true, || true);
            for [future, task] in registered {
                assert!(!poll(future, task));
                assert!(!poll(future, task));
            }
            assert_eq!(throttle.lock().wakers.len(), 2);
            throttle.open();
        }
        assert!(poll(0, 0) && poll(1, 0));
        let woken = counts.each_ref().map(|count| count.0.load(SeqCst));
        assert_eq!(woken, [1, 2, 1], "the last task that polled");
    }

    /// Guards: it ended the cleaning thread, which fails the store.
    #[test]
    fn a_waker_that_panics_stops_no_other() {
        struct Panics(AtomicBool);
        impl std::task::Wake for Panics {
            fn wake(self: Arc<Self>) {
                assert!(self.0.swap(true, SeqCst), "on purpose, the first time");
            }
        }
        let throttle = Throttle::default();
        throttle.consider(STEP_BYTES, || true, || true);
        let panics = [0; 2].map(|_| Arc::new(Panics(AtomicBool::new(false))));
        let mut futures = [0; 2].map(|_| Box::pin(throttle.wait()));
        for (future, panics) in futures.iter_mut().zip(&panics) {
            let waker = Arc::clone(panics).into();
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        throttle.open();
        assert!(panics.iter().all(|panics| panics.0.load(SeqCst)), "both are woken");
    }

    /// Runs a future on this thread.
    fn pollster(future: impl Future<Output = ()>) {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut future = std::pin::pin!(future);
        while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            std::thread::park();
        }
    }
}
