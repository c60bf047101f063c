//! The queue of callers that wait, in batches that share a request.
//!
//! A caller joins the last open batch of its width. It gets the timestamps at its offset in the
//! answer of the batch. No caller joins a batch in flight: its request is sent after the calls of
//! all its callers began, which keeps the order of timestamps.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use esker_oracle::{Range, TimestampWidth};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::Error;

/// The number of requests at a time.
pub(crate) const REQUEST_LANES: usize = 2;
/// The shortest time between two checks of deadlines.
const EXPIRY_INTERVAL_MIN: Duration = Duration::from_millis(2);
/// The most times that a request yields to callers that are ready to join it.
const YIELDS_MAX: u32 = 64;
/// The last open batches, among which a caller finds the one of its width.
const JOINABLE_BATCHES: usize = 2;

const _: () = assert!(REQUEST_LANES > 0, "a lane sends the requests");

/// Callers that share a request.
#[derive(Debug)]
pub(crate) struct Batch {
    answer: OnceLock<Result<Range, Error>>,
    waiters: Mutex<Vec<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    /// `None` once it was woken.
    waker: Option<Waker>,
    deadline: Instant,
}

/// The slot of a caller in a batch.
#[derive(Debug)]
pub(crate) struct BatchSlot {
    batch: Arc<Batch>,
    offset: u32,
    index: usize,
}

impl BatchSlot {
    /// Returns the answer of the batch, and the offset of the caller's timestamps in it.
    pub(crate) fn answer(&self) -> Option<(&Result<Range, Error>, u32)> {
        Some((self.batch.answer.get()?, self.offset))
    }

    /// Sets the waker of the caller, which is polled again. Returns whether it waits; otherwise
    /// there is an answer.
    pub(crate) fn wait(&self, waker: &Waker) -> bool {
        match self.batch.waiters.lock().get_mut(self.index) {
            Some(waiter) => {
                match &mut waiter.waker {
                    Some(old) => old.clone_from(waker),
                    None => waiter.waker = Some(waker.clone()),
                }
                true
            }
            None => {
                debug_assert!(self.answer().is_some(), "a batch without waiters has an answer");
                false
            }
        }
    }
}

/// A batch that was not sent. Callers join the last one of their width.
#[derive(Debug)]
struct OpenBatch {
    batch: Arc<Batch>,
    width: TimestampWidth,
    /// The number of timestamps for its callers.
    count: u32,
    callers: usize,
}

/// A batch whose request is being sent.
#[derive(Debug)]
pub(crate) struct InFlightBatch {
    batch: Arc<Batch>,
    pub(crate) count: u32,
    pub(crate) width: TimestampWidth,
}

impl InFlightBatch {
    /// Whether all of its callers were dropped or have expired.
    pub(crate) fn is_abandoned(&self) -> bool {
        // The other one is in the state of the queue.
        Arc::strong_count(&self.batch) <= 2
    }
}

#[derive(Debug, Default)]
struct State {
    /// The batches that were not sent, the oldest first.
    open: VecDeque<OpenBatch>,
    /// The number of callers in all open batches, dropped callers included.
    callers: usize,
    in_flight: Vec<Arc<Batch>>,
    /// The wakers of the lanes that wait for a batch.
    idle: [Option<Waker>; REQUEST_LANES],
    /// The time of the next check of deadlines.
    expiry: Option<Instant>,
    /// The number of callers of the last batch that was answered: the next one has capacity for as
    /// many.
    expected_callers: usize,
    /// The error of all calls once the queue is closed.
    closed: Option<Error>,
}

/// The queue of callers that wait.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Notified when the next check of deadlines is earlier, or the queue is closed.
    expiry_changed: Notify,
    /// The most callers in open batches.
    callers_max: usize,
    /// The most timestamps of a batch.
    pub(crate) count_max: u32,
}

impl Queue {
    pub(crate) fn new(callers_max: usize, count_max: u32) -> Self {
        let (state, expiry_changed) = (Mutex::default(), Notify::new());
        Self { state, expiry_changed, callers_max, count_max }
    }

    /// Adds a caller of `count` timestamps, at most [`Queue::count_max`].
    pub(crate) fn join(
        &self,
        count: u32,
        width: TimestampWidth,
        deadline: Instant,
        waker: Waker,
    ) -> Result<BatchSlot, Error> {
        debug_assert!((1..=self.count_max).contains(&count), "{count} timestamps were checked");
        // Dropped after the lock is released: wakers run code of their executor.
        let mut abandoned = Vec::new();
        let mut state = self.state.lock();
        if let Some(error) = &state.closed {
            return Err(error.clone());
        }
        if state.callers >= self.callers_max {
            state.take_abandoned(&mut abandoned);
        }
        if state.callers >= self.callers_max {
            return Err(Error::Busy { most: self.callers_max });
        }
        let mut lane = None;
        let place = state.find_joinable(width, self.count_max - count).unwrap_or_else(|| {
            let waiters = Mutex::new(Vec::with_capacity(state.expected_callers));
            let batch = Arc::new(Batch { answer: OnceLock::new(), waiters });
            state.open.push_back(OpenBatch { batch, width, count: 0, callers: 0 });
            lane = state.idle.iter_mut().find_map(Option::take);
            state.open.len() - 1
        });
        let is_earliest = state.expiry.is_none_or(|expiry| deadline < expiry);
        if is_earliest {
            state.expiry = Some(deadline);
        }
        state.callers += 1;
        let Some(open) = state.open.get_mut(place) else {
            drop(state);
            return Err(self.fail("a caller has an open batch to join"));
        };
        let slot = open.add_caller(count, waker, deadline);
        debug_assert!(open.count <= self.count_max, "a batch is one request");
        drop(state);
        if is_earliest {
            self.expiry_changed.notify_one();
        }
        if let Some(lane) = lane {
            lane.wake();
        }
        Ok(slot)
    }

    /// Takes the oldest batch, when there is one. `None` once the queue is closed.
    pub(crate) async fn take(&self, lane: usize) -> Option<InFlightBatch> {
        loop {
            poll_fn(|context| self.poll_open(lane, context)).await?;
            // Callers that are ready join this batch rather than wait for the next one: mostly
            // those that were woken by the last answer.
            let mut joined = 0;
            for _ in 0..YIELDS_MAX {
                let now = self.state.lock().open.front().map_or(0, |open| open.callers);
                if now == joined {
                    break;
                }
                joined = now;
                tokio::task::yield_now().await;
            }
            let mut state = self.state.lock();
            if let Some(OpenBatch { batch, width, count, callers }) = state.open.pop_front() {
                debug_assert!(state.callers >= callers, "callers of open batches are counted");
                state.callers -= callers;
                state.in_flight.push(Arc::clone(&batch));
                debug_assert!(state.in_flight.len() <= REQUEST_LANES, "a lane has one request");
                return Some(InFlightBatch { batch, count, width });
            }
        }
    }

    fn poll_open(&self, lane: usize, context: &Context<'_>) -> Poll<Option<()>> {
        let mut state = self.state.lock();
        if state.closed.is_some() {
            return Poll::Ready(None);
        }
        let is_idle = state.open.is_empty();
        state.idle[lane] = is_idle.then(|| context.waker().clone());
        if is_idle { Poll::Pending } else { Poll::Ready(Some(())) }
    }

    /// Answers the callers of a batch.
    pub(crate) fn finish(&self, finished: InFlightBatch, answer: Result<Range, Error>) {
        if let Err(error @ Error::Internal { .. }) = &answer {
            self.close_with(error.clone());
        }
        let mut state = self.state.lock();
        let before = state.in_flight.len();
        state.in_flight.retain(|batch| !Arc::ptr_eq(batch, &finished.batch));
        let was_in_flight = state.in_flight.len() + 1 == before;
        debug_assert!(was_in_flight || state.closed.is_some(), "a batch is answered once");
        drop(state);
        let callers = finished.batch.resolve(answer);
        self.state.lock().expected_callers = callers;
    }

    /// Wakes callers whose deadline passes, until the queue is closed.
    pub(crate) async fn expire(&self) {
        loop {
            let (expiry, is_closed) = {
                let state = self.state.lock();
                (state.expiry, state.closed.is_some())
            };
            if is_closed {
                return;
            }
            let Some(expiry) = expiry else {
                self.expiry_changed.notified().await;
                continue;
            };
            tokio::select! {
                () = self.expiry_changed.notified() => {}
                () = tokio::time::sleep_until(expiry.into()) => {
                    // The lock is released before a waker runs.
                    let expired = self.state.lock().take_expired(Instant::now());
                    for waker in expired {
                        waker.wake();
                    }
                }
            }
        }
    }

    /// Ends all calls with [`Error::Closed`].
    pub(crate) fn close(&self) {
        self.close_with(Error::Closed);
    }

    /// Ends all calls because `invariant` does not hold, and returns their error.
    #[track_caller]
    pub(crate) fn fail(&self, invariant: &'static str) -> Error {
        let error = Error::internal(invariant);
        self.close_with(error.clone());
        error
    }

    /// Ends all calls with this error. The first error stays.
    fn close_with(&self, error: Error) {
        let mut state = self.state.lock();
        let error = state.closed.get_or_insert(error).clone();
        let in_flight = std::mem::take(&mut state.in_flight);
        let open = std::mem::take(&mut state.open);
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        self.expiry_changed.notify_one();
        for batch in in_flight.into_iter().chain(open.into_iter().map(|open| open.batch)) {
            batch.resolve(Err(error.clone()));
        }
        for lane in idle.into_iter().flatten() {
            lane.wake();
        }
    }
}

impl OpenBatch {
    fn add_caller(&mut self, count: u32, waker: Waker, deadline: Instant) -> BatchSlot {
        let (offset, index) = (self.count, self.callers);
        self.count += count;
        self.callers += 1;
        let mut waiters = self.batch.waiters.lock();
        waiters.push(Waiter { waker: Some(waker), deadline });
        debug_assert_eq!(waiters.len(), self.callers, "each caller has a waiter");
        BatchSlot { batch: Arc::clone(&self.batch), offset, index }
    }
}

impl Batch {
    /// Sets the answer, if there is none, and wakes the callers. Returns how many there were.
    fn resolve(&self, answer: Result<Range, Error>) -> usize {
        // Set before the waiters are removed: a caller without a waiter reads it. A batch that was
        // closed keeps its error.
        drop(self.answer.set(answer));
        let waiters = std::mem::take(&mut *self.waiters.lock());
        let callers = waiters.len();
        for waiter in waiters {
            if let Some(waker) = waiter.waker {
                waker.wake();
            }
        }
        callers
    }
}

impl State {
    /// Returns the place of the last open batch of this width, if it has `count_max` timestamps at
    /// most. It is among the last batches, unless full ones of the other width came after it; then
    /// it is sent as it is.
    fn find_joinable(&self, width: TimestampWidth, count_max: u32) -> Option<usize> {
        let mut last = self.open.iter().enumerate().rev().take(JOINABLE_BATCHES);
        let (place, open) = last.find(|(_, open)| open.width == width)?;
        (open.count <= count_max).then_some(place)
    }

    /// Moves the oldest batches to `abandoned`, as long as all of their callers were dropped.
    fn take_abandoned(&mut self, abandoned: &mut Vec<OpenBatch>) {
        while let Some(open) = self.open.front()
            && Arc::strong_count(&open.batch) == 1
        {
            self.callers -= open.callers;
            abandoned.extend(self.open.pop_front());
        }
    }

    /// Returns the wakers of callers whose deadline has passed, and sets the time of the next
    /// check.
    fn take_expired(&mut self, now: Instant) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let mut next: Option<Instant> = None;
        for batch in self.open.iter().map(|open| &open.batch).chain(&self.in_flight) {
            for waiter in batch.waiters.lock().iter_mut() {
                if waiter.deadline <= now {
                    wakers.extend(waiter.waker.take());
                } else {
                    next = Some(next.map_or(waiter.deadline, |next| next.min(waiter.deadline)));
                }
            }
        }
        self.expiry = next.map(|next| next.max(now + EXPIRY_INTERVAL_MIN));
        wakers
    }
}
