//! The acknowledgement of an operation: it is there when the operation is as durable as it gets.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::Result;
use crate::log::Inner;

/// The acknowledgement of an operation that has its place in the order.
///
/// Await it, or block on it with [`Ticket::wait`]. Only when it resolves with `Ok` may an accept or
/// a promise be answered to its proposer. An error means that reopening decides. Dropping a ticket
/// does not take the operation back. Clones are acknowledged together.
#[derive(Debug, Clone)]
#[must_use = "an acceptor answers only when the ticket has resolved"]
pub struct Ticket {
    waits: Option<(esker_log::Ticket, Arc<Inner>)>,
}

impl Ticket {
    /// Nothing is left to wait for.
    pub(crate) const READY: Ticket = Ticket { waits: None };

    pub(crate) fn new(ticket: esker_log::Ticket, log: &Arc<Inner>) -> Self {
        Self { waits: Some((ticket, Arc::clone(log))) }
    }

    /// Whether it would resolve at once.
    pub fn is_ready(&self) -> bool {
        self.waits.as_ref().is_none_or(|(ticket, _)| ticket.is_durable())
    }

    /// Blocks until the operation is acknowledged.
    ///
    /// # Errors
    /// [`Error::Log`](crate::Error::Log) when the write or sync failed.
    pub fn wait(self) -> Result<()> {
        let Some((ticket, log)) = self.waits else { return Ok(()) };
        ticket.wait().map(drop).map_err(|error| log.fail(error))
    }

    /// As [`Ticket::wait`], no longer than this.
    ///
    /// # Errors
    /// As [`Ticket::wait`], and [`esker_log::Error::Deadline`]; the operation may be durable later.
    pub fn wait_timeout(self, timeout: Duration) -> Result<()> {
        let Some((ticket, log)) = self.waits else { return Ok(()) };
        ticket.wait_timeout(timeout).map(drop).map_err(|error| log.fail(error))
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some((ticket, log)) = &mut self.waits else { return Poll::Ready(Ok(())) };
        let outcome = std::task::ready!(Pin::new(ticket).poll(cx));
        Poll::Ready(outcome.map(drop).map_err(|error| log.fail(error)))
    }
}

impl Inner {
    /// The acknowledgement of what an earlier record, with this number, says.
    pub(crate) fn ticket_of(self: &Arc<Self>, seq: u64) -> Result<Ticket> {
        if seq <= self.log.durable().0 {
            return Ok(Ticket::READY);
        }
        let ticket = self.log.flush().map_err(|error| self.fail(error))?;
        Ok(Ticket::new(ticket, self))
    }

    /// The acknowledgement of a commit.
    pub(crate) fn commit_ticket(self: &Arc<Self>, ticket: esker_log::Ticket) -> Ticket {
        if self.options.sync_on_commit { Ticket::new(ticket, self) } else { Ticket::READY }
    }

    /// The acknowledgement of a commit by an earlier record.
    pub(crate) fn commit_ticket_of(self: &Arc<Self>, marker: u64) -> Result<Ticket> {
        if self.options.sync_on_commit { self.ticket_of(marker) } else { Ok(Ticket::READY) }
    }
}
