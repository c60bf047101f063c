//! Waiting for the frontier to move.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::outcome::{Error, Result};
use crate::state::inner::{ConsensusLog, Inner};

/// A watch on the frontier of a log.
#[derive(Debug)]
pub struct Watch {
    inner: Arc<Inner>,
    seen: Option<u64>,
}

impl ConsensusLog {
    /// Returns a watch that follows the frontier from its current value on.
    pub fn watch(&self) -> Watch {
        let inner = Arc::clone(&self.inner);
        inner.waiting.count.fetch_add(1, SeqCst);
        let seen = inner.frontier();
        Watch { inner, seen }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.inner.waiting.count.fetch_sub(1, SeqCst);
    }
}

impl Watch {
    /// The last frontier that this watch returned, or the one at its start.
    pub fn seen(&self) -> Option<u64> {
        self.seen
    }

    /// Waits until the frontier differs from the last one seen, and returns it.
    ///
    /// # Cancel safety
    /// Cancel-safe: only a call that completes updates the last frontier seen.
    ///
    /// # Errors
    /// [`Error::Closed`], and [`Error::Log`] when the log failed: the frontier does not move again.
    pub async fn changed(&mut self) -> Result<u64> {
        loop {
            let durable = self.inner.log.durable().0;
            // Markers become durable without any action of this crate.
            let mut moves = pin!(self.inner.log.wait_durable(durable.saturating_add(1)));
            let outcome = poll_fn(|cx| {
                self.inner.waiting.register(cx.waker());
                if let Some(frontier) = self.inner.frontier().filter(|now| Some(*now) != self.seen)
                {
                    return Poll::Ready(Ok(Some(frontier)));
                }
                if let Err(closed) = self.inner.refuse_if_closed() {
                    return Poll::Ready(Err(closed));
                }
                moves.as_mut().poll(cx).map(|moved| match moved {
                    Ok(()) => Ok(None),
                    Err(error) => Err(Error::from(error)),
                })
            })
            .await?;
            if let Some(frontier) = outcome {
                self.seen = Some(frontier);
                return Ok(frontier);
            }
        }
    }

    /// As [`Watch::changed`], blocking; `None` after the timeout.
    ///
    /// # Errors
    /// As [`Watch::changed`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<u64>> {
        let deadline = Instant::now().checked_add(timeout);
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut changed = pin!(self.changed());
        loop {
            if let Poll::Ready(outcome) = changed.as_mut().poll(&mut Context::from_waker(&waker)) {
                return outcome.map(Some);
            }
            match deadline.map(|deadline| deadline.checked_duration_since(Instant::now())) {
                Some(None) => return Ok(None),
                Some(Some(left)) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
