//! The times at which records became durable, to compute the lag of readers.
//!
//! A watcher waits for the log as readers do, first in the wait queue. It is woken on the thread
//! that publishes the durable watermark and records watermark and time. A reader that is faster
//! than the watcher records the time itself, with no lag. A measured lag may be a few microseconds
//! too short, never too long.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use esker_log::{Log, Result, Start};
use futures_core::Stream as _;

/// The largest number of commits kept. A reader that lags by more gets the time of the oldest.
const TIMES_MAX: usize = 1 << 16;

/// Values of the durable watermark with their times, in order.
#[derive(Debug)]
pub struct DurableTimes {
    times: RwLock<VecDeque<(u64, Instant)>>,
}

impl DurableTimes {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self { times: RwLock::new(VecDeque::with_capacity(TIMES_MAX)) }
    }

    /// Records that all records up to this number are durable by now.
    pub fn record(&self, seq: u64, now: Instant) {
        let mut times = self.times.write().unwrap_or_else(PoisonError::into_inner);
        if times.back().is_some_and(|(newest, _)| *newest >= seq) {
            return;
        }
        if times.len() == TIMES_MAX {
            times.pop_front();
        }
        times.push_back((seq, now));
    }

    /// Returns how long this record had been durable when it was delivered.
    pub fn lag(&self, seq: u64, delivered: Instant) -> Duration {
        let times = self.times.read().unwrap_or_else(PoisonError::into_inner);
        let at = times.partition_point(|(watermark, _)| *watermark < seq);
        let Some((_, since)) = times.get(at) else {
            drop(times);
            self.record(seq, delivered);
            return Duration::ZERO;
        };
        delivered.saturating_duration_since(*since)
    }
}

/// Records the time and polls the watcher again.
struct Recorder {
    log: Log,
    durable_times: Arc<DurableTimes>,
    watcher: Waker,
}

impl Wake for Recorder {
    fn wake(self: Arc<Self>) {
        self.durable_times.record(self.log.durable().0, Instant::now());
        self.watcher.wake_by_ref();
    }
}

/// Waits for the log until it is dropped and records when records become durable. It must register
/// before the readers do: `registered` is called once it has.
pub async fn watch(
    log: Log,
    durable_times: Arc<DurableTimes>,
    registered: impl FnOnce(),
) -> Result<()> {
    let mut stream = log.stream(Start::Tip)?;
    let mut registered = Some(registered);
    let mut recorder: Option<Waker> = None;
    std::future::poll_fn(|cx: &mut Context<'_>| {
        let watcher = cx.waker();
        let recorder = recorder.get_or_insert_with(|| {
            let (log, durable_times) = (log.clone(), Arc::clone(&durable_times));
            Arc::new(Recorder { log, durable_times, watcher: watcher.clone() }).into()
        });
        let mut cx = Context::from_waker(recorder);
        loop {
            match Pin::new(&mut stream).poll_next(&mut cx) {
                Poll::Ready(Some(Ok(_))) => durable_times.record(log.durable().0, Instant::now()),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    if let Some(registered) = registered.take() {
                        registered();
                    }
                    return Poll::Pending;
                }
            }
        }
    })
    .await
    .map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_counts_from_the_first_watermark_at_or_above_the_record() {
        let durable_times = DurableTimes::new();
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        durable_times.record(10, at(1));
        durable_times.record(20, at(5));
        durable_times.record(20, at(9));
        durable_times.record(15, at(9));
        for (seq, ms) in [(10, 9), (11, 5), (20, 5)] {
            assert_eq!(durable_times.lag(seq, at(10)), Duration::from_millis(ms), "{seq}");
        }
        // Not recorded yet: the reader that has it records it.
        assert_eq!(durable_times.lag(30, at(11)), Duration::ZERO);
        assert_eq!(durable_times.lag(25, at(12)), Duration::from_millis(1));
    }

    #[test]
    fn recorded_times_are_bounded() {
        let durable_times = DurableTimes::new();
        let begin = Instant::now();
        for seq in 0..2 * TIMES_MAX as u64 {
            durable_times.record(seq, begin);
        }
        assert_eq!(durable_times.times.read().unwrap().len(), TIMES_MAX);
    }
}
