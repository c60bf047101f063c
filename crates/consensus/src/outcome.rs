//! The ticket of an operation: its acknowledgement.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::storage_error::StorageError;

/// The log that issued a ticket. A ticket reports its failure here.
pub(crate) trait FailureSink: fmt::Debug + Send + Sync {
    fn fail(&self, error: esker_log::Error) -> StorageError;
}

/// The acknowledgement of an operation whose position in the order is assigned.
///
/// Await it, or block on it with [`Ticket::blocking_wait`]. Answer an accept or a promise to its
/// proposer only after it resolves with `Ok`. After an error, reopening decides the outcome.
/// Dropping a ticket does not undo the operation. Clones resolve together.
#[derive(Debug, Clone)]
#[must_use = "an acceptor answers only when the ticket has resolved"]
pub struct Ticket {
    waits: Option<(esker_log::Ticket, Arc<dyn FailureSink>)>,
}

impl Ticket {
    /// A ticket that is already resolved.
    pub(crate) const READY: Ticket = Ticket { waits: None };

    pub(crate) fn new(ticket: esker_log::Ticket, log: Arc<dyn FailureSink>) -> Self {
        Self { waits: Some((ticket, log)) }
    }

    /// Whether the ticket would resolve at once.
    pub fn is_ready(&self) -> bool {
        self.waits.as_ref().is_none_or(|(ticket, _)| ticket.is_durable())
    }

    /// Calls `done` once, when the operation is acknowledged or failed. If that is decided already,
    /// calls it at once, on this thread; otherwise on a thread of the engine, after the tasks and
    /// threads that wait for the same commit were woken: see [`esker_log::Ticket::on_durable`].
    ///
    /// Callbacks of a log run one at a time, in the order of their records. They must not block:
    /// commits wait for that thread. A panic in one is caught and logged.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let accepted = log.accept(Slot(0), ballot, b"layer on layer")?;
    /// accepted.on_resolved(move |outcome| drop(sender.send(outcome)));
    /// receiver.recv().unwrap()?; // durable: answer the proposer
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn on_resolved(self, done: impl FnOnce(Result<(), StorageError>) + Send + 'static) {
        match self.waits {
            None => done(Ok(())),
            Some((ticket, log)) => ticket.on_durable(move |outcome| {
                done(outcome.map(drop).map_err(|error| log.fail(error.into())));
            }),
        }
    }

    /// Gives the ticket up, and requests no sync, whereas dropping it requests one. The operation
    /// is durable with the next one that is, and after 10 ms and one commit at the latest: for the
    /// commit markers of Raft, which a majority has anyway.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.accept(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// log.commit_through(Slot(0))?.detach();
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn detach(self) {
        if let Some((ticket, _)) = self.waits {
            ticket.detach();
        }
    }

    /// Blocks until the operation is acknowledged.
    ///
    /// # Errors
    /// [`StorageError`], for example [`StorageError::Log`] when the write or sync failed.
    pub fn blocking_wait(self) -> Result<(), StorageError> {
        let Some((ticket, log)) = self.waits else { return Ok(()) };
        ticket.blocking_wait().map(drop).map_err(|error| log.fail(error.into()))
    }

    /// As [`Ticket::blocking_wait`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`Ticket::blocking_wait`], and [`esker_log::Error::Timeout`]; the operation may become
    /// durable later.
    pub fn blocking_wait_timeout(self, timeout: Duration) -> Result<(), StorageError> {
        let Some((ticket, log)) = self.waits else { return Ok(()) };
        ticket.blocking_wait_timeout(timeout).map(drop).map_err(|error| log.fail(error.into()))
    }
}

impl Future for Ticket {
    type Output = Result<(), StorageError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((ticket, log)) = &mut self.waits else { return Poll::Ready(Ok(())) };
        let outcome = std::task::ready!(Pin::new(ticket).poll(cx));
        Poll::Ready(outcome.map(drop).map_err(|error| log.fail(error.into())))
    }
}
