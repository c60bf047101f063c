//! Tickets: resolve when a record is durable.
//!
//! An append requests no commit under `Always`; waiting for, polling or dropping the ticket does.
//! Otherwise each append would wake an engine thread, one system call for each record, although its
//! caller is about to wait anyway.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::base::log_error::LogError;
use crate::base::operation_errors::WaitError;
use crate::base::position::{Position, Seq};
use crate::commit::core::schedule::Event;
use crate::commit::write_half::WriteHalf;
use crate::runtime::parked_thread::{park, thread_waker};
use crate::runtime::waiters::{Key, WaitCondition};

/// A handle to an accepted record, or the last one of a batch, that resolves when it is durable.
///
/// Await it, or block with [`Ticket::blocking_wait`]; both request a commit, under every policy.
///
/// Dropping a ticket does not take the record back. What it requests depends on the
/// [`Policy`](crate::Policy):
///
/// | policy | dropped unresolved | kept and never polled |
/// |---|---|---|
/// | `Always` | a commit | a commit after 10 ms |
/// | `Batch(n)` | nothing | nothing: the n-th append requests the commit |
/// | `Periodic(t)` | nothing | a commit after t |
/// | `OsBuffered` | a write to the operating system, no sync | the same after 10 ms |
///
/// # Durability
/// When the ticket resolves with `Ok`, the record and everything before it is on stable storage.
/// When it resolves with an error, the record may or may not survive; reopening the log decides.
#[derive(Debug)]
#[must_use = "wait for the ticket to know that the record is durable, or drop it on purpose"]
pub struct Ticket {
    log: Arc<WriteHalf>,
    seq: u64,
    unit: u64,
    position: Position,
    key: Option<Key>,
    resolved: bool,
}

/// The number and position of a record that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The record's number.
    pub seq: Seq,
    /// The record's position.
    pub position: Position,
}

/// Returns another ticket for the same record, which waits independently.
impl Clone for Ticket {
    fn clone(&self) -> Self {
        let Self { log, seq, unit, position, resolved, .. } = self;
        let log = Arc::clone(log);
        let (seq, unit, position, resolved) = (*seq, *unit, *position, *resolved);
        Self { log, seq, unit, position, key: None, resolved }
    }
}

impl Ticket {
    pub(crate) fn new(log: Arc<WriteHalf>, seq: u64, unit: u64, position: Position) -> Self {
        Self { log, seq, unit, position, key: None, resolved: false }
    }

    /// Returns the record's number, known once it is accepted. For a batch, that of its last
    /// record.
    pub fn seq(&self) -> Seq {
        Seq(self.seq)
    }

    /// Returns the record's position in the log.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns whether the record is durable now. Requests no commit.
    pub fn is_durable(&self) -> bool {
        self.log.watermark.seq() >= self.seq
    }

    /// Blocks until the record is durable. If no other thread is committing, this call runs the
    /// commit.
    ///
    /// # Errors
    /// [`LogError::Io`] when the write or sync that carried the record failed,
    /// [`LogError::Poisoned`] when an earlier one did, [`LogError::Stopped`] when the engine is
    /// gone.
    pub fn blocking_wait(mut self) -> Result<Appended, LogError> {
        self.block(None).map_err(WaitError::without_deadline)
    }

    /// Blocks until the record is durable or the time has passed. The engine runs the commit, so
    /// that a hanging disk does not block this call.
    ///
    /// # Errors
    /// As [`Ticket::blocking_wait`], and [`WaitError::Timeout`]; the record may still become
    /// durable after that.
    pub fn blocking_wait_timeout(mut self, timeout: Duration) -> Result<Appended, WaitError> {
        self.block(Instant::now().checked_add(timeout))
    }

    /// Calls `done` once, when the record is durable or never will be, and requests a commit as
    /// awaiting the ticket does. If that is decided already, calls it at once, on this thread.
    ///
    /// Otherwise a thread of the engine calls it, after it woke the tasks and threads that wait for
    /// the same commit. Callbacks of a log run one at a time, in the order of their records. They
    /// must not block: commits wait for that thread. A panic in one is caught and logged.
    ///
    /// An engine without threads ([`Engine::manual`](crate::Engine::manual)) calls it in
    /// [`Engine::run`](crate::Engine::run).
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// log.append("a record")?.on_durable(move |appended| drop(sender.send(appended)));
    /// assert_eq!(receiver.recv().unwrap()?.seq, esker_log::Seq(1));
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn on_durable(mut self, done: impl FnOnce(Result<Appended, LogError>) + Send + 'static) {
        if let Some(outcome) = self.outcome() {
            return done(outcome);
        }
        let (seq, position) = (self.seq, self.position);
        let appended = Appended { seq: Seq(seq), position };
        let callback =
            Box::new(move |outcome: Result<(), LogError>| done(outcome.map(|()| appended)));
        self.log.callbacks.add(seq, callback);
        // Nothing is left to report when it is dropped.
        self.resolved = true;
        self.log.on(Event::TicketPolled { unit: self.unit });
        // It may have been decided while the callback was added.
        self.log.wake_callbacks();
    }

    /// Gives the ticket up, and requests nothing, whatever the policy: the record becomes durable
    /// with the next commit, as that of a ticket that is kept and never polled.
    pub fn detach(mut self) {
        self.resolved = true;
    }

    fn block(&mut self, deadline: Option<Instant>) -> Result<Appended, WaitError> {
        loop {
            if let Some(outcome) = self.outcome() {
                return Ok(outcome?);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.log.on(Event::TicketPolled { unit: self.unit });
                return Err(WaitError::Timeout);
            }
            if self.log.drive(self.unit, deadline) {
                continue;
            }
            let waker = thread_waker();
            self.log.waiters.register(&mut self.key, WaitCondition::Durable(self.seq), &waker);
            if let Some(outcome) = self.outcome() {
                return Ok(outcome?);
            }
            park(deadline);
        }
    }

    fn outcome(&mut self) -> Option<Result<Appended, LogError>> {
        let outcome = self.log.outcome(self.seq)?;
        self.resolved = true;
        Some(outcome.map(|()| Appended { seq: Seq(self.seq), position: self.position }))
    }
}

impl Future for Ticket {
    type Output = Result<Appended, LogError>;

    /// # Cancel safety
    /// Cancel-safe: dropping the future loses only the notification.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        let this = &mut *self;
        this.log.waiters.register(&mut this.key, WaitCondition::Durable(this.seq), cx.waker());
        if let Some(outcome) = this.outcome() {
            return Poll::Ready(outcome);
        }
        this.log.on(Event::TicketPolled { unit: this.unit });
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.log.waiters.remove(key);
        }
        if !self.resolved {
            self.log.ticket_dropped(self.unit);
        }
    }
}
