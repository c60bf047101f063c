//! Waiting for the frontier to move.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use esker_disk::process;

use crate::base::blocking::{block_on, block_until};
use crate::base::slot::Slot;
use crate::state::inner::{ConsensusLog, Inner};
use crate::storage_error::{StorageError, refuse_if_forked};

/// A watch on the frontier of a log.
#[derive(Debug)]
pub struct Watch {
    inner: Arc<Inner>,
    seen: Option<Slot>,
}

impl ConsensusLog {
    /// Returns a watch that follows the frontier from its current value on.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// use std::time::Duration;
    ///
    /// let mut watch = log.watch();
    /// log.learn(Slot(0), ballot, b"layer on layer")?;
    /// // Or `watch.changed().await`.
    /// let frontier = watch.blocking_changed_timeout(Duration::from_secs(60))?;
    /// assert_eq!(frontier, Some(Slot(0)));
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn watch(&self) -> Watch {
        let inner = Arc::clone(&self.inner);
        inner.frontier.waiters().add_watch();
        // In a child, its first call is refused.
        let frontier = if process::is_forked() { None } else { inner.last_decided() };
        let seen = frontier.map(Slot);
        Watch { inner, seen }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.inner.frontier.waiters().remove_watch();
    }
}

impl Watch {
    /// The last frontier that this watch returned, or the one at its start.
    pub fn seen(&self) -> Option<Slot> {
        self.seen
    }

    /// Waits until the frontier differs from the last one seen, and returns it.
    ///
    /// # Cancel safety
    /// Cancel-safe: only a call that completes updates the last frontier seen.
    ///
    /// # Errors
    /// [`StorageError::Closed`], and [`StorageError::Log`] when the log failed: the frontier does
    /// not move again.
    pub async fn changed(&mut self) -> Result<Slot, StorageError> {
        loop {
            let durable = self.inner.log.durable().0;
            // Markers become durable without any action of this crate.
            let mut moves = pin!(self.inner.log.wait_durable(durable.saturating_add(1)));
            let outcome = poll_fn(|cx| {
                refuse_if_forked()?;
                self.inner.frontier.waiters().register(cx.waker());
                let frontier = self.inner.last_decided().map(Slot);
                if let Some(frontier) = frontier.filter(|now| Some(*now) != self.seen) {
                    return Poll::Ready(Ok(Some(frontier)));
                }
                if let Err(closed) = self.inner.refuse_if_closed() {
                    return Poll::Ready(Err(closed));
                }
                // The log below does not know of it.
                if let Some(invariant) = self.inner.status.broken_invariant() {
                    return Poll::Ready(Err(StorageError::Internal { invariant }));
                }
                moves.as_mut().poll(cx).map(|moved| match moved {
                    Ok(()) => Ok(None),
                    Err(error) => Err(StorageError::from_log(error)),
                })
            })
            .await?;
            if let Some(frontier) = outcome {
                self.seen = Some(frontier);
                return Ok(frontier);
            }
        }
    }

    /// As [`Watch::changed`], but blocks.
    ///
    /// # Errors
    /// As [`Watch::changed`].
    pub fn blocking_changed(&mut self) -> Result<Slot, StorageError> {
        block_on(self.changed())
    }

    /// As [`Watch::changed`], but blocks for at most `timeout`, and then returns `None`.
    ///
    /// # Errors
    /// As [`Watch::changed`].
    pub fn blocking_changed_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Slot>, StorageError> {
        block_until(Instant::now().checked_add(timeout), self.changed()).transpose()
    }
}
