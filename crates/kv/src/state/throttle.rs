//! Holds up writers while cleaning is behind.
//!
//! When more space is used than the bound allows, the gate closes once for each megabyte that is
//! written. It opens when cleaning has done its next step, at most [`WAIT_MAX`] later for callers
//! that block. So writers go on at the pace of cleaning, and no call waits for long.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The longest time that a blocking call waits.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(20);
/// The gate closes at most once for so many bytes.
const STEP: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Throttle {
    closed: AtomicBool,
    /// The step of the log when the gate was last considered.
    step: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
    opened: Condvar,
    /// How often the gate was closed.
    times: AtomicU64,
    /// Microseconds that callers waited, all together.
    waited: AtomicU64,
}

impl Throttle {
    /// Closes the gate if `is_behind`, which is asked once for each step of the log, unless no pass
    /// will open it: cleaning opens it after it stopped.
    #[inline]
    pub(crate) fn consider(
        &self,
        position: u64,
        is_behind: impl FnOnce() -> bool,
        is_running: impl FnOnce() -> bool,
    ) {
        let (step, last) = (position / STEP, self.step.load(Relaxed));
        if step > last
            && self.step.compare_exchange(last, step, Relaxed, Relaxed).is_ok()
            && is_behind()
        {
            if self.times.fetch_add(1, Relaxed) == 0 {
                tracing::info!("cleaning is behind: writers wait for it");
            }
            self.closed.store(true, SeqCst);
            if !is_running() {
                self.open();
            }
        }
    }

    /// Lets all callers go on.
    pub(crate) fn open(&self) {
        if self.closed.swap(false, SeqCst) {
            let wakers = std::mem::take(&mut *self.waiting.lock());
            self.opened.notify_all();
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Blocks while the gate is closed, for [`WAIT_MAX`] at most. Then it opens it for all.
    #[cold]
    pub(crate) fn blocking_wait(&self) {
        let began = Instant::now();
        let mut waiting = self.waiting.lock();
        while self.closed.load(SeqCst) {
            let left = WAIT_MAX.saturating_sub(began.elapsed());
            if left.is_zero() {
                drop(waiting);
                self.open();
                break;
            }
            self.opened.wait_for(&mut waiting, left);
        }
        self.waited.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
    }

    /// Waits while the gate is closed.
    pub(crate) fn wait(&self) -> impl Future<Output = ()> {
        Wait { throttle: self, began: None }
    }

    /// How often the gate was closed, and how long callers waited, all together.
    pub(crate) fn counts(&self) -> (u64, Duration) {
        (self.times.load(Relaxed), Duration::from_micros(self.waited.load(Relaxed)))
    }
}

struct Wait<'a> {
    throttle: &'a Throttle,
    began: Option<Instant>,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let throttle = self.throttle;
        if throttle.is_closed() {
            let mut waiting = throttle.waiting.lock();
            // Under the lock: who opens the gate takes the wakers after that.
            if throttle.closed.load(SeqCst) {
                waiting.push(cx.waker().clone());
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_gate_closes_once_for_a_step_and_opens_by_itself() {
        let throttle = Throttle::default();
        throttle.consider(STEP - 1, || true, || true);
        assert!(!throttle.is_closed(), "less than a step was written");
        throttle.consider(STEP, || true, || true);
        assert!(throttle.is_closed());
        throttle.blocking_wait();
        assert!(!throttle.is_closed());
        throttle.consider(STEP + 1, || true, || true);
        assert!(!throttle.is_closed(), "it was considered for this step");
        throttle.consider(2 * STEP, || false, || true);
        assert!(!throttle.is_closed(), "cleaning is not behind");
        throttle.consider(3 * STEP, || true, || false);
        assert!(!throttle.is_closed(), "no pass would open it");
        let (times, waited) = throttle.counts();
        assert!(times == 2 && waited >= WAIT_MAX, "{times} {waited:?}");
    }

    #[test]
    fn opening_wakes_all_who_wait() {
        let throttle = Arc::new(Throttle::default());
        throttle.consider(STEP, || true, || true);
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
        while throttle.waiting.lock().len() < 2 && throttle.is_closed() {
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
