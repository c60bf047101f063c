//! Whether a connection is used, and takes its answers.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use tokio::sync::Notify;

/// How often a connection is looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(25);
/// Looks without a new request until a connection is closed: 75 seconds, also for one that sent
/// half of one.
const IDLE: u32 = 3;

/// The requests of a connection, and its answers that wait.
///
/// Answers that were ready since a look are one generation. When the next look has passed, and
/// another one comes, all of a generation have been taken, or the connection takes no answers.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    begun: AtomicU64,
    ended: AtomicU64,
    /// How many looks there were: the number of the generation.
    looks: AtomicU64,
    /// Answers of the newest generation and of the one before, by the parity of their numbers.
    waiting: [AtomicU64; 2],
    /// That others need what the connection holds.
    eviction: Notify,
}

impl Traffic {
    /// Whether no request is being answered, nor an answer on its way.
    pub(crate) fn is_quiet(&self) -> bool {
        // Read first: each of them has begun.
        let ended = self.ended.load(Acquire);
        ended == self.begun.load(Relaxed)
    }

    /// Has the connection closed: others wait for what it holds.
    pub(crate) fn evict(&self) {
        self.eviction.notify_one();
    }

    /// Waits until the connection is to be closed.
    pub(crate) async fn evicted(&self) {
        self.eviction.notified().await;
    }

    fn waits(&self, generation: u64) -> &AtomicU64 {
        let [even, odd] = &self.waiting;
        if generation.is_multiple_of(2) { even } else { odd }
    }
}

/// A request, until its answer was taken, or until it was given up.
#[derive(Debug)]
pub(crate) struct Underway(Arc<Traffic>);

impl Underway {
    pub(crate) fn new(traffic: &Arc<Traffic>) -> Self {
        traffic.begun.fetch_add(1, Relaxed);
        Self(Arc::clone(traffic))
    }

    /// Its answer is ready.
    pub(crate) fn waits(&self) -> Waits {
        Waits::new(&self.0)
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Release);
    }
}

/// An answer that waits to be taken, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waits {
    traffic: Arc<Traffic>,
    generation: u64,
}

impl Waits {
    pub(crate) fn new(traffic: &Arc<Traffic>) -> Self {
        let generation = traffic.looks.load(Relaxed);
        traffic.waits(generation).fetch_add(1, Relaxed);
        Self { traffic: Arc::clone(traffic), generation }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.traffic.waits(self.generation).fetch_sub(1, Relaxed);
    }
}

/// What was seen of a connection.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    begun: u64,
    quiet: u32,
}

/// What is to be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Stays,
    IsIdle,
    TakesNoAnswers,
}

impl Looks {
    /// A look at a connection, the next after [`LOOK`].
    pub(crate) fn look(&mut self, traffic: &Traffic) -> Verdict {
        let begun = traffic.begun.load(Relaxed);
        let is_quiet = begun == self.begun;
        self.begun = begun;
        self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
        // The generation before this one. The next takes over its counter.
        let generation = traffic.looks.fetch_add(1, Relaxed);
        if traffic.waits(generation + 1).load(Relaxed) > 0 {
            Verdict::TakesNoAnswers
        } else if self.quiet >= IDLE {
            Verdict::IsIdle
        } else {
            Verdict::Stays
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> (Arc<Traffic>, Looks) {
        (Arc::default(), Looks::default())
    }

    #[test]
    fn a_connection_without_requests_is_idle_after_three_looks() {
        let (traffic, mut looks) = connection();
        for _ in 0..3 {
            let request = Underway::new(&traffic);
            assert!(!traffic.is_quiet());
            drop(request);
            assert!(traffic.is_quiet());
            assert_eq!([(); 2].map(|()| looks.look(&traffic)), [Verdict::Stays; 2]);
        }
        assert_eq!(looks.look(&traffic), Verdict::Stays);
        assert_eq!(looks.look(&traffic), Verdict::IsIdle);
        // One that never sent a request.
        let (traffic, mut looks) = connection();
        assert_eq!([(); 2].map(|()| looks.look(&traffic)), [Verdict::Stays; 2]);
        assert_eq!(looks.look(&traffic), Verdict::IsIdle);
    }

    /// However many others it takes meanwhile.
    #[test]
    fn an_answer_that_waits_for_two_looks_ends_its_connection() {
        let (traffic, mut looks) = connection();
        assert_eq!(looks.look(&traffic), Verdict::Stays);
        let (_kept, late) = (Waits::new(&traffic), Waits::new(&traffic));
        assert_eq!(looks.look(&traffic), Verdict::Stays, "they are new");
        for _ in 0..100 {
            drop(Underway::new(&traffic).waits());
        }
        drop(late);
        assert_eq!(looks.look(&traffic), Verdict::TakesNoAnswers);
    }

    #[test]
    fn answers_that_are_taken_in_time_keep_their_connection() {
        let (traffic, mut looks) = connection();
        let mut before = Waits::new(&traffic);
        for _ in 0..20 {
            drop(Underway::new(&traffic));
            assert_eq!(looks.look(&traffic), Verdict::Stays);
            // The one before is dropped.
            before = Waits::new(&traffic);
        }
        drop(before);
    }
}
