//! A sink: many records in, one wait at the end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::base::error::{Error, Result};
use crate::base::position::Seq;
use crate::log::Log;
use crate::runtime::waiters::{For, Key};
use crate::write::input::Append;
use crate::write::ticket::{Appended, Ticket};

/// Appends records without waiting for each, and waits for all at [`Sink::blocking_flush`].
///
/// It is a [`futures_sink::Sink`] too; [`Sink::blocking_flush`] blocks, and `SinkExt::flush(&mut sink)` is the
/// one to await. The staging memory of the log is its buffer: a record that
/// was pushed is accepted, and dropping the sink loses none; but only a flush that returned `Ok`
/// says that they are durable. After a failed or cancelled flush the sink can be used on, as far as
/// the log can: [`Sink::last`] tells the last record pushed, [`Log::durable`] how far it got.
#[derive(Debug)]
pub struct Sink {
    log: Log,
    last: Option<Ticket>,
    pushed: Seq,
    room: Option<Key>,
}

impl Log {
    /// A sink for this log. There may be any number of them.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn sink(&self) -> Result<Sink> {
        if self.write.is_closed() {
            return Err(Error::Closed);
        }
        Ok(Sink { log: self.clone(), last: None, pushed: self.accepted(), room: None })
    }

    /// A sink, if the log has room for a record right now.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn try_sink(&self) -> Result<Option<Sink>> {
        if self.write.has_room() { self.sink().map(Some) } else { Ok(None) }
    }
}

impl Sink {
    /// Appends a record. Waits, blocking, while the staging memory is full.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn push(&mut self, record: impl Append) -> Result<()> {
        let ticket = self.log.append(record)?;
        self.keep(ticket);
        Ok(())
    }

    /// As [`Sink::push`], but does not wait.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::Full`].
    pub fn try_push(&mut self, record: impl Append) -> Result<()> {
        let ticket = self.log.try_append(record)?;
        self.keep(ticket);
        Ok(())
    }

    /// Blocks until everything pushed is durable. Without anything pushed since the last flush it
    /// does nothing.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub fn blocking_flush(&mut self) -> Result<Option<Appended>> {
        self.last.take().map(Ticket::wait).transpose()
    }

    /// The number of the last record pushed, or of the last one accepted before the sink was made.
    pub fn last(&self) -> Seq {
        self.pushed
    }

    fn keep(&mut self, ticket: Ticket) {
        self.pushed = ticket.seq();
        // The ticket before asks, as it is dropped, for what the policy owes to those who do not
        // wait.
        self.last = Some(ticket);
    }

    fn poll_resolved(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(ticket) = &mut self.last else {
            return Poll::Ready(Ok(()));
        };
        let outcome = ready!(Pin::new(ticket).poll(cx));
        self.last = None;
        Poll::Ready(outcome.map(|_| ()))
    }
}

impl<A: Append> futures_sink::Sink<A> for Sink {
    type Error = Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let shared = &this.log.write;
        for registered in [false, true] {
            if shared.has_room() {
                return Poll::Ready(Ok(()));
            }
            if !registered {
                shared.waiters.register(&mut this.room, For::Room, cx.waker());
            }
        }
        shared.ask_and_kick(u64::MAX);
        Poll::Pending
    }

    /// # Errors
    /// [`Error::Full`] where others took the room meanwhile, and as [`Log::append`].
    fn start_send(mut self: Pin<&mut Self>, record: A) -> Result<()> {
        let ticket = self.log.write.try_append_here(&record)?;
        self.keep(ticket);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.poll_resolved(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.poll_resolved(cx)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(key) = self.room.take() {
            self.log.write.waiters.remove(key);
        }
    }
}
