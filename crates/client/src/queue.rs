//! Callers that wait, and the batches that they share.
//!
//! A caller joins the last batch that no request has taken. It gets the timestamps at its offset in
//! the batch's answer. Once a request has taken a batch, no caller joins it: the request is sent
//! after the calls of all its callers began, which is what keeps their order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use esker_oracle::Range;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::Error;

/// Requests at a time.
pub(crate) const LANES: usize = 2;
/// Deadlines are looked at so often at most.
const EXPIRY: Duration = Duration::from_millis(2);
/// How often a request yields to callers that are ready to join it.
const YIELDS_MAX: u32 = 64;

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

/// A caller's place in a batch.
#[derive(Debug)]
pub(crate) struct Joined {
    batch: Arc<Batch>,
    offset: u32,
    slot: usize,
}

impl Joined {
    /// The answer, in which the caller's timestamps begin at the offset.
    pub(crate) fn answer(&self) -> Option<(&Result<Range, Error>, u32)> {
        Some((self.batch.answer.get()?, self.offset))
    }

    /// The caller is polled again: this waker wakes it. Whether it waits; otherwise there is an
    /// answer.
    pub(crate) fn wait(&self, waker: &Waker) -> bool {
        match self.batch.waiters.lock().get_mut(self.slot) {
            Some(waiter) => {
                match &mut waiter.waker {
                    Some(old) => old.clone_from(waker),
                    None => waiter.waker = Some(waker.clone()),
                }
                true
            }
            None => false,
        }
    }
}

/// A batch that callers may join, if it is the last.
#[derive(Debug)]
struct Open {
    batch: Arc<Batch>,
    /// Timestamps that its callers want.
    count: u32,
    callers: usize,
}

/// A batch that a request has taken.
#[derive(Debug)]
pub(crate) struct Taken {
    batch: Arc<Batch>,
    pub(crate) count: u32,
}

impl Taken {
    /// Whether all of its callers were dropped or have expired.
    pub(crate) fn is_abandoned(&self) -> bool {
        // This one, and the one among those that were taken.
        Arc::strong_count(&self.batch) <= 2
    }
}

#[derive(Debug, Default)]
struct State {
    /// What no request has taken, the oldest first.
    open: VecDeque<Open>,
    /// Callers in all of these, those that were dropped included.
    callers: usize,
    taken: Vec<Arc<Batch>>,
    /// The lanes that wait for a batch.
    idle: [Option<Waker>; LANES],
    /// When deadlines are looked at next.
    expiry: Option<Instant>,
    /// The callers of the last batch that was answered: room for as many is made at once.
    expected: usize,
    closed: bool,
}

/// Callers that wait.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    earlier: Notify,
    /// The most callers.
    callers_max: usize,
    /// The most timestamps of a batch.
    pub(crate) count_max: u32,
}

impl Queue {
    pub(crate) fn new(callers_max: usize, count_max: u32) -> Self {
        let (state, earlier) = (Mutex::default(), Notify::new());
        Self { state, earlier, callers_max, count_max }
    }

    /// Adds a caller that wants so many timestamps, at most [`Queue::count_max`].
    pub(crate) fn join(
        &self,
        count: u32,
        deadline: Instant,
        waker: Waker,
    ) -> Result<Joined, Error> {
        // Dropped after the lock is released: wakers run what their executor wants.
        let mut abandoned = Vec::new();
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::Closed);
        }
        if state.callers >= self.callers_max {
            state.take_abandoned(&mut abandoned);
        }
        if state.callers >= self.callers_max {
            return Err(Error::Busy { most: self.callers_max });
        }
        let mut lane = None;
        if state.open.back().is_none_or(|open| open.count > self.count_max - count) {
            let waiters = Mutex::new(Vec::with_capacity(state.expected));
            let batch = Arc::new(Batch { answer: OnceLock::new(), waiters });
            state.open.push_back(Open { batch, count: 0, callers: 0 });
            lane = state.idle.iter_mut().find_map(Option::take);
        }
        let is_earliest = state.expiry.is_none_or(|expiry| deadline < expiry);
        if is_earliest {
            state.expiry = Some(deadline);
        }
        state.callers += 1;
        let Some(open) = state.open.back_mut() else { return Err(Error::Closed) };
        let (offset, slot) = (open.count, open.callers);
        open.count += count;
        open.callers += 1;
        open.batch.waiters.lock().push(Waiter { waker: Some(waker), deadline });
        let joined = Joined { batch: Arc::clone(&open.batch), offset, slot };
        drop(state);
        if is_earliest {
            self.earlier.notify_one();
        }
        if let Some(lane) = lane {
            lane.wake();
        }
        Ok(joined)
    }

    /// Takes the oldest batch, when there is one. `None` once the queue is closed.
    pub(crate) async fn take(&self, lane: usize) -> Option<Taken> {
        loop {
            poll_fn(|context| self.poll_open(lane, context)).await?;
            // Those that are ready to call join this batch, rather than wait for the next: the
            // callers that were woken by the last answer, for the most part.
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
            if let Some(Open { batch, count, callers }) = state.open.pop_front() {
                state.callers -= callers;
                state.taken.push(Arc::clone(&batch));
                return Some(Taken { batch, count });
            }
        }
    }

    fn poll_open(&self, lane: usize, context: &Context<'_>) -> Poll<Option<()>> {
        let mut state = self.state.lock();
        if state.closed {
            return Poll::Ready(None);
        }
        let is_idle = state.open.is_empty();
        if let Some(idle) = state.idle.get_mut(lane) {
            *idle = is_idle.then(|| context.waker().clone());
        }
        if is_idle { Poll::Pending } else { Poll::Ready(Some(())) }
    }

    /// Answers the callers of a batch.
    pub(crate) fn finish(&self, taken: Taken, answer: Result<Range, Error>) {
        let mut state = self.state.lock();
        state.taken.retain(|batch| !Arc::ptr_eq(batch, &taken.batch));
        drop(state);
        let callers = taken.batch.resolve(answer);
        self.state.lock().expected = callers;
    }

    /// Wakes callers whose deadline passes, until the queue is closed.
    pub(crate) async fn expire(&self) {
        loop {
            let (expiry, closed) = {
                let state = self.state.lock();
                (state.expiry, state.closed)
            };
            if closed {
                return;
            }
            let Some(expiry) = expiry else {
                self.earlier.notified().await;
                continue;
            };
            tokio::select! {
                () = self.earlier.notified() => {}
                () = tokio::time::sleep_until(expiry.into()) => {
                    // The lock is released before a waker runs.
                    let expired = self.state.lock().expired(Instant::now());
                    for waker in expired {
                        waker.wake();
                    }
                }
            }
        }
    }

    /// Ends all waits with [`Error::Closed`].
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let taken = std::mem::take(&mut state.taken);
        let open = std::mem::take(&mut state.open);
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        self.earlier.notify_one();
        for batch in taken.into_iter().chain(open.into_iter().map(|open| open.batch)) {
            batch.resolve(Err(Error::Closed));
        }
        for lane in idle.into_iter().flatten() {
            lane.wake();
        }
    }
}

impl Batch {
    /// Sets the answer, if there is none, and wakes the callers. Returns how many there were.
    fn resolve(&self, answer: Result<Range, Error>) -> usize {
        // Set first: a caller that finds no place to wait in reads it.
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
    /// Takes the oldest batches out, as far as all of their callers were dropped.
    fn take_abandoned(&mut self, abandoned: &mut Vec<Open>) {
        while let Some(open) = self.open.front()
            && Arc::strong_count(&open.batch) == 1
        {
            self.callers -= open.callers;
            abandoned.extend(self.open.pop_front());
        }
    }

    /// The wakers of callers whose deadline has passed. Sets when the next ones are due.
    fn expired(&mut self, now: Instant) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let mut next: Option<Instant> = None;
        for batch in self.open.iter().map(|open| &open.batch).chain(&self.taken) {
            for waiter in batch.waiters.lock().iter_mut() {
                if waiter.deadline <= now {
                    wakers.extend(waiter.waker.take());
                } else {
                    next = Some(next.map_or(waiter.deadline, |next| next.min(waiter.deadline)));
                }
            }
        }
        self.expiry = next.map(|next| next.max(now + EXPIRY));
        wakers
    }
}
