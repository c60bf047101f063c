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
const MOST: usize = 1 << 16;

/// Values of the durable watermark with their times, in order.
#[derive(Debug)]
pub struct DurableTimes {
    noted: RwLock<VecDeque<(u64, Instant)>>,
}

impl DurableTimes {
    /// None yet.
    pub fn new() -> Self {
        Self { noted: RwLock::new(VecDeque::with_capacity(MOST)) }
    }

    /// Records that all records up to this number are durable by now.
    pub fn note(&self, seq: u64, now: Instant) {
        let mut noted = self.noted.write().unwrap_or_else(PoisonError::into_inner);
        if noted.back().is_some_and(|(newest, _)| *newest >= seq) {
            return;
        }
        if noted.len() == MOST {
            noted.pop_front();
        }
        noted.push_back((seq, now));
    }

    /// Returns how long this record had been durable when it was delivered.
    pub fn lag(&self, seq: u64, delivered: Instant) -> Duration {
        let noted = self.noted.read().unwrap_or_else(PoisonError::into_inner);
        let at = noted.partition_point(|(mark, _)| *mark < seq);
        let Some((_, since)) = noted.get(at) else {
            drop(noted);
            self.note(seq, delivered);
            return Duration::ZERO;
        };
        delivered.saturating_duration_since(*since)
    }
}

/// Records the time and polls the watcher again.
struct Noting {
    log: Log,
    durable_times: Arc<DurableTimes>,
    watcher: Waker,
}

impl Wake for Noting {
    fn wake(self: Arc<Self>) {
        self.durable_times.note(self.log.durable().0, Instant::now());
        self.watcher.wake_by_ref();
    }
}

/// Waits for the log until it is dropped and records when records become durable. It must register
/// before the readers do: `standing` is called once it has.
pub async fn watch(
    log: Log,
    durable_times: Arc<DurableTimes>,
    standing: impl FnOnce(),
) -> Result<()> {
    let mut stream = log.stream(Start::Tip)?;
    let mut standing = Some(standing);
    let mut noting: Option<Waker> = None;
    std::future::poll_fn(|cx: &mut Context<'_>| {
        let watcher = cx.waker();
        let noting = noting.get_or_insert_with(|| {
            let (log, durable_times) = (log.clone(), Arc::clone(&durable_times));
            Arc::new(Noting { log, durable_times, watcher: watcher.clone() }).into()
        });
        let mut cx = Context::from_waker(noting);
        loop {
            match Pin::new(&mut stream).poll_next(&mut cx) {
                Poll::Ready(Some(Ok(_))) => durable_times.note(log.durable().0, Instant::now()),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    if let Some(standing) = standing.take() {
                        standing();
                    }
                    return Poll::Pending;
                }
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_counts_from_the_first_mark_at_or_above_the_record() {
        let durable_times = DurableTimes::new();
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        durable_times.note(10, at(1));
        durable_times.note(20, at(5));
        durable_times.note(20, at(9));
        durable_times.note(15, at(9));
        for (seq, ms) in [(10, 9), (11, 5), (20, 5)] {
            assert_eq!(durable_times.lag(seq, at(10)), Duration::from_millis(ms), "{seq}");
        }
        // Not recorded yet: the reader that has it records it.
        assert_eq!(durable_times.lag(30, at(11)), Duration::ZERO);
        assert_eq!(durable_times.lag(25, at(12)), Duration::from_millis(1));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let durable_times = DurableTimes::new();
        let begin = Instant::now();
        for seq in 0..2 * MOST as u64 {
            durable_times.note(seq, begin);
        }
        assert_eq!(durable_times.noted.read().unwrap().len(), MOST);
    }
}
