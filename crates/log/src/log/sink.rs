//! A sink: appends many records, and waits once at the end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::base::log_error::LogError;
use crate::base::operation_errors::AppendError;
use crate::base::position::Seq;
use crate::commit::core::schedule::Event;
use crate::log::Log;
use crate::runtime::waiters::{Key, WaitCondition};
use crate::write::input::Input;
use crate::write::ticket::{Appended, Ticket};

/// Appends records without waiting for each one; a flush waits for all of them.
///
/// It is a [`futures_sink::Sink`]. Threads use [`Sink::blocking_append`], [`Sink::try_append`] and
/// [`Sink::blocking_flush`]. The log's staging memory is the buffer: a pushed record is
/// accepted, and dropping the sink loses none.
///
/// A sink is a handle to its log, as a clone of the [`Log`] is: the log stays open and locked until
/// the last handle is dropped, or until [`Log::close`].
///
/// After a failed or cancelled flush the sink stays usable if the log does. [`Sink::last`] returns
/// the last record pushed, and [`Log::durable`] how far the log is durable.
///
/// # Durability
/// Pushed records are durable only once a flush has returned `Ok`.
#[derive(Debug)]
pub struct Sink {
    log: Log,
    last: Option<Ticket>,
    pushed: Seq,
    room: Option<Key>,
}

impl Sink {
    /// Returns a sink for this log. A log may have any number of sinks.
    ///
    /// # Errors
    /// [`LogError::Closed`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # use esker_log::{Log, Sink};
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let mut sink = Sink::new(&log)?;
    /// for n in 0..100u32 {
    ///     sink.blocking_append(n.to_le_bytes())?;
    /// }
    /// sink.blocking_flush()?; // all of them are durable
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn new(log: &Log) -> Result<Self, LogError> {
        log.refuse_if_closed()?;
        Ok(Self { log: log.clone(), last: None, pushed: log.accepted(), room: None })
    }

    /// Appends a record. Blocks while the staging memory is full.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn blocking_append(&mut self, payload: impl AsRef<[u8]>) -> Result<(), AppendError> {
        let ticket = self.log.append(payload)?;
        self.keep(ticket);
        Ok(())
    }

    /// As [`Sink::blocking_append`], but does not wait.
    ///
    /// # Errors
    /// As [`Log::append`], and [`AppendError::Full`].
    pub fn try_append(&mut self, payload: impl AsRef<[u8]>) -> Result<(), AppendError> {
        let ticket = self.log.try_append(payload)?;
        self.keep(ticket);
        Ok(())
    }

    /// Blocks until everything pushed is durable. Does nothing if nothing was pushed since the last
    /// flush.
    ///
    /// # Errors
    /// As [`Ticket::blocking_wait`].
    pub fn blocking_flush(&mut self) -> Result<Option<Appended>, LogError> {
        self.last.take().map(Ticket::blocking_wait).transpose()
    }

    /// Returns the number of the last record pushed, or else of the last one accepted before the
    /// sink was created.
    pub fn last(&self) -> Seq {
        self.pushed
    }

    fn keep(&mut self, ticket: Ticket) {
        self.pushed = ticket.seq();
        // Dropping the previous ticket requests what the policy guarantees to callers that do not
        // wait.
        self.last = Some(ticket);
    }

    fn poll_resolved(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AppendError>> {
        let Some(ticket) = &mut self.last else {
            return Poll::Ready(Ok(()));
        };
        let outcome = ready!(Pin::new(ticket).poll(cx));
        self.last = None;
        Poll::Ready(outcome.map(drop).map_err(AppendError::Log))
    }
}

impl<P: AsRef<[u8]>> futures_sink::Sink<P> for Sink {
    type Error = AppendError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), AppendError>> {
        let this = &mut *self;
        let write = &this.log.write;
        for registered in [false, true] {
            if write.has_room() {
                return Poll::Ready(Ok(()));
            }
            if !registered {
                write.waiters.register(&mut this.room, WaitCondition::Room, cx.waker());
            }
        }
        write.on(Event::SinkPolled);
        Poll::Pending
    }

    /// # Errors
    /// [`AppendError::Full`] when other appenders used up the room since `poll_ready`, or on a full
    /// disk from which segments may leave with the next commit, or are about to be removed by
    /// another thread; and as [`Log::append`].
    fn start_send(mut self: Pin<&mut Self>, payload: P) -> Result<(), AppendError> {
        let ticket = self.log.write.try_append_here(Input::next(&payload))?;
        self.keep(ticket);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), AppendError>> {
        self.poll_resolved(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), AppendError>> {
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
