//! Work in the background that many callers may request, and one thread does.

use crate::sync::{AtomicUsize, Ordering::SeqCst};

/// The state without a thread that works.
const STATE_IDLE: usize = 0;
/// The state in which a thread works that has seen all requests so far.
const STATE_WORKING: usize = 1;
/// The state in which a thread works, and there was a request since it began its last step.
const STATE_REQUESTED: usize = 2;

/// A request for work, and whether a thread does it.
#[derive(Debug)]
pub(crate) struct Request(AtomicUsize);

impl Default for Request {
    fn default() -> Self {
        Self(AtomicUsize::new(STATE_IDLE))
    }
}

impl Request {
    /// Requests the work: a step begins after this call. `true` if no thread works: the caller must
    /// have one call [`Request::work`], or withdraw the request.
    #[must_use]
    pub(crate) fn make(&self) -> bool {
        let next = |state| Some(if state == STATE_IDLE { STATE_WORKING } else { STATE_REQUESTED });
        self.0.fetch_update(SeqCst, SeqCst, next) == Ok(STATE_IDLE)
    }

    pub(crate) fn withdraw(&self) {
        self.0.store(STATE_IDLE, SeqCst);
    }

    /// Whether a thread works, or is about to.
    pub(crate) fn is_made(&self) -> bool {
        self.0.load(SeqCst) != STATE_IDLE
    }

    /// Takes steps until one finds nothing to do and nothing was requested since it began. After an
    /// error or a panic the work waits for the next request.
    pub(crate) fn work<E>(&self, mut step: impl FnMut() -> Result<bool, E>) -> Result<(), E> {
        let withdraw_on_drop = WithdrawOnDrop(self);
        loop {
            let state = self.0.swap(STATE_WORKING, SeqCst);
            debug_assert!(state != STATE_IDLE, "a thread works only after a request");
            let is_done = !step()?;
            if is_done && self.0.compare_exchange(STATE_WORKING, STATE_IDLE, SeqCst, SeqCst).is_ok()
            {
                // Another thread may work from here on.
                std::mem::forget(withdraw_on_drop);
                return Ok(());
            }
        }
    }
}

/// Withdraws the request when it is dropped.
struct WithdrawOnDrop<'a>(&'a Request);

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}
