//! A latency histogram for each thread that runs callers, however many callers there are.
//!
//! A histogram takes more than 100 KB, and a run touches about a tenth of it. One for each of
//! thousands of callers would exceed the CPU caches and the TLB, and the benchmark would measure
//! its own cache misses.
//!
//! Recording allocates nothing and shares no cache line: each thread has its own slot, whose
//! lock is uncontended.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::measure::latency::Latencies;

/// Threads that recorded something.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of this thread. Threads that start to record one after the other have different
    /// slots.
    static THREAD: usize = THREADS.fetch_add(1, Relaxed);
}

/// Histograms of callers that each wait for a sync.
const SHARED_HISTOGRAMS: usize = 16;

/// The histograms. Clones share them.
#[derive(Debug, Clone)]
pub struct PerThread {
    slots: Arc<[Slot]>,
}

/// Aligned to two cache lines, because processors prefetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Slot(Mutex<Latencies>);

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Latencies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PerThread {
    /// Creates histograms for this many threads, at least one.
    pub fn new(threads: usize) -> Self {
        let slots = (0..threads.max(1)).map(|_| Slot(Mutex::new(Latencies::new()))).collect();
        Self { slots }
    }

    /// Creates histograms for this many threads that each wait for a sync: they seldom record at
    /// the same time, so that a few histograms do.
    pub fn shared(threads: usize) -> Self {
        Self::new(threads.min(SHARED_HISTOGRAMS))
    }

    /// Records an operation of this thread. With more threads than slots, threads share.
    pub fn add(&self, time: Duration) {
        let slot = THREAD.with(|thread| thread % self.slots.len());
        self.slots[slot].lock().add(time);
    }

    /// Returns everything recorded since the last call. Must not be called while callers run.
    pub fn take(&self) -> Latencies {
        let mut all = Latencies::new();
        for slot in &*self.slots {
            let mut latencies = slot.lock();
            if latencies.count() > 0 {
                all.merge(&latencies);
                latencies.reset();
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_returns_each_recording_once() {
        let all = PerThread::new(3);
        std::thread::scope(|scope| {
            for thread in 0..5u64 {
                let all = &all;
                scope.spawn(move || {
                    (0..100).for_each(|n| all.add(Duration::from_micros(thread * 100 + n + 1)));
                });
            }
        });
        let taken = all.take();
        assert_eq!((taken.count(), all.take().count()), (500, 0));
        assert!((taken.max_us() - 500.0).abs() < 1.0, "{}", taken.max_us());
    }
}
