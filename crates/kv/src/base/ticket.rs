//! The ticket of a write.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use esker_log::Seq;

use crate::base::operation_errors::WriteError;
use crate::base::store_error::StoreError;

/// A handle to an accepted write that resolves when it is durable.
///
/// Await it, or block with [`Ticket::blocking_wait`]; both request a commit, under every policy.
/// Dropping a ticket does not take the write back; see [`esker_log::Ticket`] for what it requests.
#[derive(Debug, Clone)]
#[must_use = "wait for the ticket to know that the write is durable, or drop it on purpose"]
pub struct Ticket(pub(crate) esker_log::Ticket);

impl Ticket {
    /// Returns the position of the write: the sequence number of its last record.
    pub fn seq(&self) -> Seq {
        self.0.seq()
    }

    /// Returns whether the write is durable now. Requests no commit.
    pub fn is_durable(&self) -> bool {
        self.0.is_durable()
    }

    /// Blocks until the write is durable. If no other thread is committing, this call runs the
    /// commit.
    ///
    /// # Errors
    /// [`StoreError::Log`]: the write or sync that carried the record failed.
    /// [`StoreError::Poisoned`]: an earlier one did. The write may or may not survive; reopening
    /// decides.
    pub fn blocking_wait(self) -> Result<Seq, StoreError> {
        Ok(self.0.blocking_wait()?.seq)
    }

    /// Blocks until the write is durable or the time has passed.
    ///
    /// # Errors
    /// [`WriteError::Timeout`], after which the write may still become durable; and as
    /// [`Ticket::blocking_wait`].
    pub fn blocking_wait_timeout(self, timeout: Duration) -> Result<Seq, WriteError> {
        Ok(self.0.blocking_wait_timeout(timeout)?.seq)
    }
}

impl Future for Ticket {
    type Output = Result<Seq, StoreError>;

    /// # Cancel safety
    /// Cancel-safe: dropping the future loses only the notification.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = std::task::ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(outcome.map(|appended| appended.seq).map_err(Into::into))
    }
}
