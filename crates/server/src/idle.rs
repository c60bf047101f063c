//! Detection of connections that are idle, or that do not take their answers.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use tokio::sync::Notify;

/// The time between two checks of a connection.
pub(crate) const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(25);
/// The number of checks without a new request after which a connection is closed, also one that
/// sent half of a request.
const IDLE_CHECKS_MAX: u32 = 3;
/// The time after which a connection without a request is closed.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

const _: () = assert!(
    IDLE_CHECK_INTERVAL.as_secs() * IDLE_CHECKS_MAX as u64 == IDLE_TIMEOUT.as_secs(),
    "connections over TCP and over QUIC are idle after the same time"
);

/// The requests of a connection, and its answers that the client has not taken.
///
/// Answers that became ready between two checks are one generation. All of a generation have been
/// taken at the second check after them, or the connection does not take its answers.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    begun: AtomicU64,
    ended: AtomicU64,
    /// The number of checks, which is the number of the current generation.
    generation: AtomicU64,
    /// Untaken answers of the current generation and of the one before, by the parity of their
    /// numbers.
    untaken: [AtomicU64; 2],
    /// Notified when requests wait for the memory that the connection holds.
    eviction: Notify,
}

impl Traffic {
    /// Whether no request is being answered, and no answer is being sent.
    pub(crate) fn is_quiet(&self) -> bool {
        // Read first: each of them has begun.
        let ended = self.ended.load(Acquire);
        let begun = self.begun.load(Relaxed);
        debug_assert!(ended <= begun, "{ended} requests ended, and {begun} began");
        ended == begun
    }

    /// Whether an answer is ready that the client has not taken.
    pub(crate) fn has_untaken(&self) -> bool {
        self.untaken.iter().any(|answers| answers.load(Relaxed) > 0)
    }

    /// Closes the connection: requests wait for the memory that it holds.
    pub(crate) fn evict(&self) {
        self.eviction.notify_one();
    }

    /// Waits until the connection is to be closed.
    pub(crate) async fn evicted(&self) {
        self.eviction.notified().await;
    }

    fn untaken(&self, generation: u64) -> &AtomicU64 {
        let [even, odd] = &self.untaken;
        if generation.is_multiple_of(2) { even } else { odd }
    }
}

/// A request, until its answer was taken, or until the request was given up.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<Traffic>);

impl RequestGuard {
    pub(crate) fn new(traffic: &Arc<Traffic>) -> Self {
        traffic.begun.fetch_add(1, Relaxed);
        Self(Arc::clone(traffic))
    }

    /// Begins to wait until the client takes the answer, which is ready.
    pub(crate) fn answer_ready(&self) -> AnswerGuard {
        AnswerGuard::new(&self.0)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Release);
    }
}

/// An answer that the client has not taken. Dropped when it has.
#[derive(Debug)]
pub(crate) struct AnswerGuard {
    traffic: Arc<Traffic>,
    generation: u64,
}

impl AnswerGuard {
    pub(crate) fn new(traffic: &Arc<Traffic>) -> Self {
        let generation = traffic.generation.load(Relaxed);
        traffic.untaken(generation).fetch_add(1, Relaxed);
        Self { traffic: Arc::clone(traffic), generation }
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        let before = self.traffic.untaken(self.generation).fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "an answer is taken once");
    }
}

/// The state of the checks of one connection.
#[derive(Debug, Default)]
pub(crate) struct IdleCheck {
    begun: u64,
    checks_without_request: u32,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    CloseIdle,
    CloseStalled,
}

impl IdleCheck {
    /// Checks a connection. Called once in each [`IDLE_CHECK_INTERVAL`].
    pub(crate) fn check(&mut self, traffic: &Traffic) -> Verdict {
        let begun = traffic.begun.load(Relaxed);
        debug_assert!(begun >= self.begun, "requests are not uncounted");
        let has_request = begun != self.begun;
        self.begun = begun;
        self.checks_without_request = if has_request { 0 } else { self.checks_without_request + 1 };
        // The generation before this one. The next takes over its counter.
        let generation = traffic.generation.fetch_add(1, Relaxed);
        if traffic.untaken(generation + 1).load(Relaxed) > 0 {
            Verdict::CloseStalled
        } else if self.checks_without_request >= IDLE_CHECKS_MAX {
            Verdict::CloseIdle
        } else {
            Verdict::Keep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> (Arc<Traffic>, IdleCheck) {
        (Arc::default(), IdleCheck::default())
    }

    #[test]
    fn a_connection_without_requests_is_idle_after_three_checks() {
        let (traffic, mut idle) = connection();
        for _ in 0..3 {
            let request = RequestGuard::new(&traffic);
            assert!(!traffic.is_quiet());
            drop(request);
            assert!(traffic.is_quiet());
            assert_eq!([(); 2].map(|()| idle.check(&traffic)), [Verdict::Keep; 2]);
        }
        assert_eq!(idle.check(&traffic), Verdict::Keep);
        assert_eq!(idle.check(&traffic), Verdict::CloseIdle);
        // One that never sent a request.
        let (traffic, mut idle) = connection();
        assert_eq!([(); 2].map(|()| idle.check(&traffic)), [Verdict::Keep; 2]);
        assert_eq!(idle.check(&traffic), Verdict::CloseIdle);
    }

    /// However many others it takes meanwhile.
    #[test]
    fn an_answer_that_waits_for_two_checks_ends_its_connection() {
        let (traffic, mut idle) = connection();
        assert_eq!(idle.check(&traffic), Verdict::Keep);
        let (_kept, late) = (AnswerGuard::new(&traffic), AnswerGuard::new(&traffic));
        assert_eq!(idle.check(&traffic), Verdict::Keep, "they are new");
        for _ in 0..100 {
            drop(RequestGuard::new(&traffic).answer_ready());
        }
        drop(late);
        assert_eq!(idle.check(&traffic), Verdict::CloseStalled);
    }

    #[test]
    fn answers_that_are_taken_in_time_keep_their_connection() {
        let (traffic, mut idle) = connection();
        let mut before = AnswerGuard::new(&traffic);
        for _ in 0..20 {
            drop(RequestGuard::new(&traffic));
            assert_eq!(idle.check(&traffic), Verdict::Keep);
            // The one before is dropped.
            before = AnswerGuard::new(&traffic);
        }
        drop(before);
    }
}
