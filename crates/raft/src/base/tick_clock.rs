//! Timers of openraft that fire at the ticks of one clock.
//!
//! tokio wakes its own thread, by a write to a file descriptor, for each timer that is earlier than
//! all others. An idle node sets such timers a hundred times a second: for openraft's ticks, and
//! for the deadline of each heartbeat. Here they wait in a list, and one task looks at it at each
//! tick. That task has the timer of the tick after the next one registered when it fires, so its
//! own timers are never the earliest. A follower that is awake for a heartbeat ticks then, and its
//! next tick is a little later than the next heartbeat: while they come, it wakes for nothing else.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::base::environment::is_simulated;

/// A shorter sleep yields until its deadline instead of waiting for a tick: openraft gathers the
/// completions of a microsecond. tokio's own timers have a resolution of a millisecond.
const YIELDING_SLEEP_MAX: Duration = Duration::from_micros(100);

thread_local! {
    static CURRENT_CLOCK: RefCell<Option<Arc<TickClock>>> = const { RefCell::new(None) };
}

/// A clock that ticks, and the timers that wait for it.
#[derive(Debug)]
pub(crate) struct TickClock {
    period: Duration,
    waiting: Mutex<TimerQueue>,
    /// Notified for a tick before its time.
    early: Notify,
}

/// The timers of openraft, of which there are a few at a time: two for each other node.
#[derive(Debug, Default)]
struct TimerQueue {
    next_id: u64,
    /// The time of the last tick before its time.
    last_early_tick: Option<Instant>,
    timers: Vec<Timer>,
}

#[derive(Debug)]
struct Timer {
    id: u64,
    deadline: Instant,
    waker: Waker,
}

impl TickClock {
    pub(crate) fn new(period: Duration) -> Arc<Self> {
        Arc::new(Self { period, waiting: Mutex::default(), early: Notify::new() })
    }

    /// Sets the clock of the timers that are made on this thread.
    pub(crate) fn set_for_thread(self: &Arc<Self>) {
        CURRENT_CLOCK.set(Some(Arc::clone(self)));
    }

    /// Replaces the clock of the timers that are made on this thread; `None` for tokio's timers.
    #[cfg(feature = "simulation")]
    pub(crate) fn replace_for_thread(ticks: Option<&Arc<Self>>) {
        CURRENT_CLOCK.set(ticks.cloned());
    }

    /// Ticks now, because the thread is awake for a heartbeat or for entries, unless it did so for
    /// one that came just before.
    pub(crate) fn tick_early() {
        CURRENT_CLOCK.with_borrow(|ticks| {
            if let Some(ticks) = ticks
                && ticks.may_tick_early()
            {
                ticks.early.notify_one();
            }
        });
    }

    fn may_tick_early(&self) -> bool {
        let last = self.waiting.lock().last_early_tick;
        last.is_none_or(|at| at.elapsed() * 2 >= self.period)
    }

    /// Ticks until the future is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let begun = Instant::now();
        let mut next = Box::pin(sleep_until(begun + self.period));
        let mut after = Box::pin(sleep_until(begun + 2 * self.period));
        loop {
            let on_time = poll_fn(|context| {
                // Registered, if it is not yet.
                let _ = after.as_mut().poll(context);
                next.as_mut().poll(context)
            });
            let is_early = tokio::select! {
                biased;
                () = on_time => false,
                () = self.early.notified() => true,
            };
            let now = Instant::now();
            if is_early {
                self.waiting.lock().last_early_tick = Some(now);
                if after.deadline() < now + self.period * 9 / 8 {
                    after = Box::pin(sleep_until(now + self.period * 5 / 4));
                }
                // Dropped: one that is reset to later still wakes the thread at its old time.
                let later = after.deadline() + self.period;
                next = std::mem::replace(&mut after, Box::pin(sleep_until(later)));
            } else {
                let later = now.max(after.deadline()) + self.period;
                next.as_mut().reset(later);
                std::mem::swap(&mut next, &mut after);
            }
            for waker in self.due(now) {
                waker.wake();
            }
        }
    }

    fn due(&self, now: Instant) -> Vec<Waker> {
        let mut waiting = self.waiting.lock();
        let due = waiting.timers.extract_if(.., |timer| timer.deadline <= now);
        due.map(|timer| timer.waker).collect()
    }
}

/// Waits for a deadline: on a thread of a node until the tick after it, or without a tick if it is
/// near, and elsewhere as tokio does.
#[derive(Debug)]
pub struct Sleep(SleepKind);

#[derive(Debug)]
enum SleepKind {
    AtTick { ticks: Arc<TickClock>, deadline: Instant, id: Option<u64> },
    Yield(Instant),
    Precise(Pin<Box<tokio::time::Sleep>>),
}

impl Sleep {
    pub(crate) fn until(deadline: Instant) -> Self {
        let is_near = deadline.saturating_duration_since(Instant::now()) < YIELDING_SLEEP_MAX;
        Self(match CURRENT_CLOCK.with_borrow(Clone::clone) {
            // Where time stands still while tasks run, it would yield for ever.
            Some(_) if is_near && is_simulated() => {
                SleepKind::Precise(Box::pin(sleep_until(deadline)))
            }
            Some(_) if is_near => SleepKind::Yield(deadline),
            Some(ticks) => SleepKind::AtTick { ticks, deadline, id: None },
            None => SleepKind::Precise(Box::pin(sleep_until(deadline))),
        })
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (ticks, deadline, id) = match &mut self.0 {
            SleepKind::Precise(sleep) => return sleep.as_mut().poll(context),
            SleepKind::Yield(deadline) if Instant::now() >= *deadline => return Poll::Ready(()),
            SleepKind::Yield(_) => {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            SleepKind::AtTick { ticks, deadline, id } => (ticks, *deadline, id),
        };
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        let mut waiting = ticks.waiting.lock();
        let known = waiting.timers.iter_mut().find(|timer| Some(timer.id) == *id);
        match known {
            Some(timer) => timer.waker.clone_from(context.waker()),
            None => {
                let new = waiting.next_id;
                waiting.next_id += 1;
                debug_assert!(id.is_none(), "a timer that waits is in the list of its clock");
                waiting.timers.push(Timer { id: new, deadline, waker: context.waker().clone() });
                *id = Some(new);
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let SleepKind::AtTick { ticks, id: Some(id), .. } = &self.0 {
            ticks.waiting.lock().timers.retain(|timer| timer.id != *id);
        }
    }
}

pin_project! {
    /// A future that has until a deadline.
    #[derive(Debug)]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F> Timeout<F> {
    pub(crate) fn at(deadline: Instant, future: F) -> Self {
        Self { future, sleep: Sleep::until(deadline) }
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        pin!(this.sleep).poll(context).map(|()| Err(Elapsed))
    }
}

/// The deadline of a [`Timeout`] has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline has passed")
    }
}

impl std::error::Error for Elapsed {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::time::timeout;

    use super::*;

    const TEST_PERIOD: Duration = Duration::from_millis(12);

    fn runtime() -> (tokio::runtime::Runtime, Arc<TickClock>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        (builder.enable_time().start_paused(true).build().unwrap(), TickClock::new(TEST_PERIOD))
    }

    /// Measures a sleep, in ticks and parts of one.
    async fn slept(wanted: Duration) -> f64 {
        let begun = Instant::now();
        Sleep::until(begun + wanted).await;
        begun.elapsed().as_secs_f64() / TEST_PERIOD.as_secs_f64()
    }

    #[test]
    fn a_sleep_ends_at_the_first_tick_after_its_deadline() {
        let (runtime, ticks) = runtime();
        runtime.block_on(async {
            assert!((slept(TEST_PERIOD * 2 / 3).await - 2.0 / 3.0).abs() < 0.1, "as tokio does");
            ticks.set_for_thread();
            tokio::spawn(Arc::clone(&ticks).run());
            tokio::task::yield_now().await;
            for (wanted, ticks) in [(2, 1.0), (3, 1.0), (4, 2.0), (6, 2.0), (31, 11.0)] {
                let took = slept(TEST_PERIOD * wanted / 3).await;
                assert!((took - ticks).abs() < 0.2, "{wanted}: {took}");
            }
        });
        CURRENT_CLOCK.set(None);
    }

    /// A wait of 24 ms for each microsecond halved what one node commits.
    #[test]
    fn a_short_sleep_does_not_wait_for_a_tick() {
        let ticks = TickClock::new(Duration::from_secs(3600));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            ticks.set_for_thread();
            for short in [Duration::ZERO, Duration::from_micros(1), YIELDING_SLEEP_MAX / 2] {
                let end = Instant::now() + short;
                Sleep::until(end).await;
                assert!(Instant::now() >= end);
            }
        });
        CURRENT_CLOCK.set(None);
    }

    /// Heartbeats replace the ticks of the clock, whatever its phase was.
    #[test]
    fn a_thread_that_is_awake_ticks_at_once_and_not_again() {
        let (runtime, ticks) = runtime();
        runtime.block_on(async {
            ticks.set_for_thread();
            tokio::spawn(Arc::clone(&ticks).run());
            // Right after a tick of the clock.
            slept(TEST_PERIOD).await;
            TickClock::tick_early();
            for _ in 0..40 {
                let due = tokio::spawn(Sleep::until(Instant::now() + TEST_PERIOD / 4));
                tokio::time::sleep(TEST_PERIOD).await;
                assert!(!due.is_finished(), "the clock ticked");
                TickClock::tick_early();
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(due.is_finished());
            }
            let due = tokio::spawn(Sleep::until(Instant::now() + TEST_PERIOD / 6));
            tokio::time::sleep(TEST_PERIOD / 4).await;
            TickClock::tick_early();
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(!due.is_finished(), "it ticked just before");
            // Without heartbeats the clock ticks by itself.
            assert!(slept(TEST_PERIOD / 4).await <= 1.3);
        });
        CURRENT_CLOCK.set(None);
    }

    #[test]
    fn ticks_go_on_after_a_pause_of_the_thread() {
        let (runtime, ticks) = runtime();
        runtime.block_on(async {
            ticks.set_for_thread();
            tokio::spawn(Arc::clone(&ticks).run());
            slept(TEST_PERIOD).await;
            tokio::time::advance(TEST_PERIOD * 100).await;
            for _ in 0..3 {
                assert!(slept(TEST_PERIOD).await < 2.2);
            }
        });
        CURRENT_CLOCK.set(None);
    }

    #[test]
    fn timers_that_are_dropped_are_forgotten() {
        let (runtime, ticks) = runtime();
        runtime.block_on(async {
            ticks.set_for_thread();
            tokio::spawn(Arc::clone(&ticks).run());
            let never = std::future::pending::<()>();
            let long = Timeout::at(Instant::now() + TEST_PERIOD * 50, never);
            assert!(timeout(TEST_PERIOD * 3, long).await.is_err());
            assert!(ticks.waiting.lock().timers.is_empty());
            let never = std::future::pending::<()>();
            assert_eq!(Timeout::at(Instant::now() + TEST_PERIOD, never).await, Err(Elapsed));
            assert_eq!(Timeout::at(Instant::now() + TEST_PERIOD, async { 7 }).await, Ok(7));
            assert!(ticks.waiting.lock().timers.is_empty());
        });
        CURRENT_CLOCK.set(None);
    }
}
