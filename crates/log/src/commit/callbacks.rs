//! Callbacks that wait for records, beside the wait queues.
//!
//! They run on a thread of the engine, one at a time and in the order of their records, after the
//! tasks and threads that wait for the same commit were woken. A callback is added first, and the
//! watermark is read after that; a commit publishes first, and looks for callbacks after that. So
//! one of the two sees the other.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst, fence};

use parking_lot::Mutex;

use crate::base::log_error::LogError;

/// Called with the outcome of a record.
pub(crate) type Callback = Box<dyn FnOnce(Result<(), LogError>) + Send>;

#[derive(Default)]
pub(crate) struct Callbacks {
    waiting: Mutex<WaitingCallbacks>,
    /// The lowest record that one waits for, plus one; 0 without any.
    first: AtomicU64,
    /// Held by the thread that runs them.
    running: Mutex<()>,
}

#[derive(Default)]
struct WaitingCallbacks {
    /// By record, and in the order in which they came.
    callbacks: BTreeMap<(u64, u64), Callback>,
    added: u64,
}

impl std::fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callbacks").field("first", &self.first).finish_non_exhaustive()
    }
}

impl Callbacks {
    pub(crate) fn add(&self, seq: u64, callback: Callback) {
        let mut waiting = self.waiting.lock();
        waiting.added += 1;
        let key = (seq, waiting.added);
        waiting.callbacks.insert(key, callback);
        self.store_first(&waiting);
        drop(waiting);
        fence(SeqCst);
    }

    /// The lowest record that one waits for.
    #[inline]
    pub(crate) fn first(&self) -> Option<u64> {
        fence(SeqCst);
        self.first.load(SeqCst).checked_sub(1)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().callbacks.len()
    }

    /// Runs those that are due, unless another thread does. `outcome` is `None` for a record that
    /// is undecided.
    pub(crate) fn run(&self, outcome: impl Fn(u64) -> Option<Result<(), LogError>>) {
        // Looked at again after each round: meanwhile a thread may have found this one running.
        while self.first().is_some_and(|first| outcome(first).is_some())
            && let Some(_running) = self.running.try_lock()
        {
            while let Some((callback, outcome)) = self.take(&outcome) {
                if catch_unwind(AssertUnwindSafe(|| callback(outcome))).is_err() {
                    tracing::error!("a completion callback panicked");
                }
            }
        }
    }

    /// Takes the first callback if its record is decided.
    fn take(
        &self,
        outcome: impl Fn(u64) -> Option<Result<(), LogError>>,
    ) -> Option<(Callback, Result<(), LogError>)> {
        let mut waiting = self.waiting.lock();
        let first = waiting.callbacks.first_entry()?;
        let outcome = outcome(first.key().0)?;
        let callback = first.remove();
        self.store_first(&waiting);
        Some((callback, outcome))
    }

    fn store_first(&self, waiting: &WaitingCallbacks) {
        let first =
            waiting.callbacks.first_key_value().map_or(0, |((seq, _), _)| seq.saturating_add(1));
        self.first.store(first, SeqCst);
    }
}
