//! Phase 1: promise.
//!
//! # The answer
//!
//! A promise's record has a position in the order, and the answer is as of that position. The
//! promise holds all slot locks: every accept and commit decided earlier is before its record, and
//! no accept below its ballot is after it. The answer holds the uncommitted entries, the floor and
//! the highest committed slot. Committed entries never change, so they are read on demand.
//!
//! Truncation and `install` may drop committed entries before they are read. A proposer that takes
//! a dropped slot for one that was never accepted chooses a second value for it. So the answer is
//! whole or refused. An iteration over committed slots never skips a truncated one (see `iterate`).
//! If a visitor stops early, the first slot not yet listed is compared with the floor as well.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::errors::protocol_errors::{PromiseError, ReadError};
use crate::memory::entry::Entry;
use crate::outcome::Ticket;
use crate::protocol::rules;
use crate::record;
use crate::state::inner::{ConsensusLog, Inner};
use crate::storage_error::StorageError;

/// A promise and its answer, as of its own position in the order.
#[derive(Debug, Clone)]
pub struct PromiseAnswer {
    log: ConsensusLog,
    ballot: Ballot,
    /// The sequence number of the promise's record.
    seq: u64,
    from: Slot,
    floor: Option<Slot>,
    frontier: Option<Slot>,
    /// Every entry from slot `from` on that was accepted and not committed.
    uncommitted: Vec<Entry<'static>>,
    /// The highest committed slot.
    highest: Option<Slot>,
}

/// The acknowledgement of a promise. It resolves with the answer when the promise is durable.
#[derive(Debug)]
#[must_use = "a promise is given when the ticket has resolved"]
pub struct PromiseTicket {
    ticket: Ticket,
    promised: PromiseAnswer,
}

impl ConsensusLog {
    /// Promises to accept nothing below this ballot. `from` is the first slot that the proposer
    /// lacks. The answer holds every entry from there on, committed or not. Send it to the proposer
    /// when the ticket has resolved.
    ///
    /// # Errors
    /// [`PromiseError::StaleBallot`] when a higher ballot was promised; [`PromiseError::Storage`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// let promised = log.promise(ballot, Slot(0))?.blocking_wait()?;
    /// assert_eq!((promised.ballot(), promised.uncommitted().len()), (ballot, 0));
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn promise(&self, ballot: Ballot, from: Slot) -> Result<PromiseTicket, PromiseError> {
        let inner = &self.inner;
        inner.refuse_if_closed()?;
        let guard = crossbeam_epoch::pin();
        // Reads the pages that the frontier comes to: with all locks, every caller would wait.
        inner.count_durable(&guard);
        let mut locks = inner.all_locks()?;
        let promise_state = locks.promise_state();
        inner.writable(&promise_state)?;
        if !rules::promise(promise_state.promise, ballot) {
            return Err(PromiseError::StaleBallot { promised: promise_state.promise });
        }
        let ticket = inner.append(|out| record::promise(out, ballot))?;
        locks.promise(ballot, true);
        let seq = ticket.seq().0;
        let ticket = Ticket::new(ticket, inner.failure_sink());
        inner.count_in_memory(&guard);
        let (next, highest) = inner.frontier.lock().next_and_highest();
        debug_assert!(next >= inner.start(), "slots below the floor are not decided");
        let promised = PromiseAnswer {
            log: self.clone(),
            ballot,
            seq,
            from,
            floor: inner.start().checked_sub(1).map(Slot),
            frontier: next.checked_sub(1).map(Slot),
            uncommitted: inner.uncommitted_from(from.0, &guard),
            highest: highest.map(Slot),
        };
        drop(locks);
        inner.checkpoint_if_due();
        Ok(PromiseTicket { ticket, promised })
    }

    /// The highest promised ballot, durable or not; `None` if nothing was ever promised or
    /// accepted.
    pub fn promised(&self) -> Option<Ballot> {
        self.inner.locks.promised()
    }
}

impl Inner {
    /// Every entry from `from` on that is accepted and not committed. The caller holds all slot
    /// locks.
    fn uncommitted_from(&self, from: u64, guard: &crossbeam_epoch::Guard) -> Vec<Entry<'static>> {
        let mut all = Vec::new();
        self.each_uncommitted(from, guard, |_, resident| {
            all.push(Entry::shared(resident.counted(), false));
        });
        all
    }
}

impl PromiseAnswer {
    /// The ballot that was promised.
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Slots up to this one were truncated; a snapshot has them. `None` when none was.
    pub fn floor(&self) -> Option<Slot> {
        self.floor
    }

    /// Slots up to this one are committed. `None` when the first is not.
    pub fn frontier(&self) -> Option<Slot> {
        self.frontier
    }

    /// The highest committed slot, whether or not there are gaps below it.
    pub fn highest_committed(&self) -> Option<Slot> {
        self.highest
    }

    /// The entries that were accepted and not committed, from the first missing slot on, in order.
    pub fn uncommitted(&self) -> &[Entry<'static>] {
        &self.uncommitted
    }

    /// Visits every entry from the first missing slot on, committed or not, in order, above the
    /// floor of the answer. Committed entries are read on demand, so the answer takes no more
    /// memory than the mutable region. A slot that was uncommitted when the promise was given is
    /// visited as it was then. A slot that was empty then and was committed since may be visited,
    /// as committed.
    ///
    /// # Errors
    /// [`ReadError::Truncated`] when truncation or [`install`](crate::Snapshots::install) passed
    /// committed slots before they were visited, even if the visitor stopped before it reached
    /// them. The answer is then incomplete: promise again. Otherwise as [`ConsensusLog::read`].
    pub fn for_each(
        &self,
        mut visit: impl FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ReadError> {
        let first = self.from.max(self.floor.map_or(Slot::ZERO, Slot::next));
        // The first slot that is not visited yet.
        let mut rest = first;
        let mut visit = |entry: &Entry<'_>| {
            rest = entry.slot().next();
            visit(entry)
        };
        let mut uncommitted = self.uncommitted.iter().peekable();
        if let Some(highest) = self.highest.filter(|highest| *highest >= first) {
            let flow = self.log.iterate_committed(first.0, highest.0, self.seq, &mut |entry| {
                while let Some(other) = uncommitted.next_if(|other| other.slot() <= entry.slot()) {
                    let same = other.slot() == entry.slot();
                    visit(other)?;
                    if same {
                        return ControlFlow::Continue(());
                    }
                }
                visit(entry)
            })?;
            if flow.is_break() {
                if rest <= highest {
                    self.log.inner.keeps(rest.0)?;
                }
                return Ok(flow);
            }
        }
        for entry in uncommitted {
            if visit(entry).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl PromiseTicket {
    /// Blocks until the promise is durable.
    ///
    /// # Errors
    /// [`StorageError`], for example [`StorageError::Log`] when the write or sync failed.
    pub fn blocking_wait(self) -> Result<PromiseAnswer, StorageError> {
        self.ticket.blocking_wait()?;
        Ok(self.promised)
    }

    /// As [`PromiseTicket::blocking_wait`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`PromiseTicket::blocking_wait`], and [`esker_log::Error::Timeout`]; the promise may be
    /// durable later.
    pub fn blocking_wait_timeout(self, timeout: Duration) -> Result<PromiseAnswer, StorageError> {
        self.ticket.blocking_wait_timeout(timeout)?;
        Ok(self.promised)
    }
}

impl Future for PromiseTicket {
    type Output = Result<PromiseAnswer, StorageError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = std::task::ready!(Pin::new(&mut self.ticket).poll(cx));
        Poll::Ready(outcome.map(|()| self.promised.clone()))
    }
}
