//! Phase 2: accept.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crossbeam_epoch::Guard;
use esker_disk::planted::{Bug, is_planted};
use esker_disk::process;

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::errors::protocol_errors::{AcceptBatchError, AcceptError};
use crate::index::page::{Page, State, Word};
use crate::index::slot_locks::PromiseState;
use crate::memory::cell::Borrowed;
use crate::memory::entry::Entry;
use crate::memory::value::SharedValue;
use crate::memory::value_budget::{RoomWaiter, charge};
use crate::memory::value_pool::new_value;
use crate::options::{Options, exceeded_limit};
use crate::outcome::Ticket;
use crate::protocol::rules::{self, AcceptDecision, SlotState};
use crate::record;
use crate::state::inner::{ConsensusLog, Inner};
use crate::storage_error::{StorageError, refuse_if_forked};

/// A hundred years, which any clock can represent.
const ACCEPT_TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The outcome of one attempt to accept.
enum AcceptOutcome {
    /// The value was appended, or stored in memory.
    Stored(Ticket),
    /// The slot had the value before.
    Duplicate(Ticket),
    /// The mutable region lacks room for this many more bytes.
    Full(u64),
}

/// A value that is to be accepted.
#[derive(Clone, Copy)]
struct Proposal<'a> {
    slot: u64,
    ballot: Ballot,
    value: &'a [u8],
}

impl ConsensusLog {
    /// Accepts a value in a slot, uncommitted, and promises its ballot. A higher ballot replaces
    /// the entry of a lower one. Answer the proposer when the ticket has resolved.
    ///
    /// A repeated accept of the same ballot and value is acknowledged again. An accept of a
    /// committed slot's own value is acknowledged under any ballot and promises nothing, because
    /// the slot can no longer change.
    ///
    /// Does not wait for room in the mutable region. See [`ConsensusLog`] for when the call blocks.
    ///
    /// # Errors
    /// [`AcceptError`]; in each case nothing was accepted.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// let ballot = Ballot { number: 1, node: 7 };
    /// let ticket = log.accept(Slot(0), ballot, b"layer on layer")?;
    /// ticket.blocking_wait()?; // durable: answer the proposer
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn accept(&self, slot: Slot, ballot: Ballot, value: &[u8]) -> Result<Ticket, AcceptError> {
        self.inner.accept(slot.0, ballot, value, None)
    }

    /// As [`ConsensusLog::accept`], but blocks for at most `timeout` until there is room.
    /// Operations on other slots continue meanwhile.
    ///
    /// # Errors
    /// As [`ConsensusLog::accept`].
    pub fn accept_timeout(
        &self,
        slot: Slot,
        ballot: Ballot,
        value: &[u8],
        timeout: Duration,
    ) -> Result<Ticket, AcceptError> {
        self.inner.accept(
            slot.0,
            ballot,
            value,
            Instant::now().checked_add(timeout.min(ACCEPT_TIMEOUT_MAX)),
        )
    }

    /// As [`ConsensusLog::accept`], but waits as a pending future until there is room, however long
    /// that takes. Put a time limit around it.
    ///
    /// # Cancel safety
    /// Cancel-safe: a future that is dropped before it is ready has accepted nothing.
    ///
    /// # Errors
    /// As [`ConsensusLog::accept`], without [`AcceptError::BufferFull`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Result, Slot};
    /// # async fn example(log: ConsensusLog, ballot: Ballot) -> Result<()> {
    /// Ok(log.accept_async(Slot(0), ballot, b"layer on layer").await?.await?)
    /// # }
    /// ```
    pub async fn accept_async(
        &self,
        slot: Slot,
        ballot: Ballot,
        value: &[u8],
    ) -> Result<Ticket, AcceptError> {
        let inner = &self.inner;
        refuse_too_large(&inner.options, value)?;
        let mut room = RoomWait(Some(inner.budget.waiter()));
        loop {
            match inner.try_accept(slot.0, ballot, value)? {
                AcceptOutcome::Stored(ticket) | AcceptOutcome::Duplicate(ticket) => {
                    inner.checkpoint_if_due();
                    return Ok(ticket);
                }
                AcceptOutcome::Full(more) => {
                    poll_fn(|cx| room.poll(more, cx)).await?;
                }
            }
        }
    }

    /// As [`ConsensusLog::accept_batch`], but waits as a pending future until there is room for
    /// each value, however long that takes.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready may have accepted the first values.
    ///
    /// # Errors
    /// As [`ConsensusLog::accept_batch`], without [`AcceptError::BufferFull`].
    pub async fn accept_batch_async(
        &self,
        ballot: Ballot,
        values: &[(Slot, &[u8])],
    ) -> Result<Ticket, AcceptBatchError> {
        let mut tickets = Vec::with_capacity(values.len());
        for (slot, value) in values {
            match self.accept_async(*slot, ballot, value).await {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => return Err(self.stopped_batch(tickets, error)),
            }
        }
        Ok(self.ticket_of_all(tickets)?)
    }

    /// Accepts several values under one ballot, in order, with one sync. The ticket acknowledges
    /// all of them. Does not wait for room in the mutable region.
    ///
    /// # Errors
    /// [`AcceptBatchError::Refused`] when the first value is refused: nothing was accepted.
    /// [`AcceptBatchError::Stopped`] when a later one is refused: the values before it are
    /// accepted, and its ticket acknowledges them. [`AcceptBatchError::Storage`].
    pub fn accept_batch(
        &self,
        ballot: Ballot,
        values: &[(Slot, &[u8])],
    ) -> Result<Ticket, AcceptBatchError> {
        let mut tickets = Vec::with_capacity(values.len());
        for (slot, value) in values {
            match self.accept(*slot, ballot, value) {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => return Err(self.stopped_batch(tickets, error)),
            }
        }
        Ok(self.ticket_of_all(tickets)?)
    }

    /// The error of a batch whose next value was refused.
    fn stopped_batch(&self, tickets: Vec<Ticket>, error: AcceptError) -> AcceptBatchError {
        if tickets.is_empty() {
            return error.into();
        }
        let (accepted, source) = (tickets.len(), Box::new(error));
        let newest = tickets.iter().rfind(|ticket| !ticket.is_ready()).cloned();
        // A failed log issues no new ticket; an earlier one reports the failure.
        match self.ticket_of_all(tickets).or_else(|error| newest.ok_or(error)) {
            Ok(ticket) => AcceptBatchError::Stopped { accepted, ticket, source },
            Err(error) => error.into(),
        }
    }

    /// Returns one ticket that acknowledges several accepts.
    fn ticket_of_all(&self, tickets: Vec<Ticket>) -> Result<Ticket, StorageError> {
        // Records become durable in order, so one barrier covers all of them. A value that was
        // accepted before may have its record anywhere.
        match tickets.iter().all(Ticket::is_ready) {
            true => Ok(Ticket::READY),
            false => {
                let ticket = self.inner.log.barrier().map_err(|error| self.inner.fail(error))?;
                Ok(Ticket::new(ticket, self.inner.failure_sink()))
            }
        }
    }
}

/// A task that waits for room. A child that `fork` made neither waits nor ends the wait.
struct RoomWait<'a>(Option<RoomWaiter<'a>>);

impl RoomWait<'_> {
    fn poll(&mut self, more: u64, cx: &mut Context<'_>) -> Poll<Result<(), StorageError>> {
        refuse_if_forked()?;
        let has_room = self.0.as_mut().is_none_or(|waiter| waiter.has_room(more, cx.waker()));
        if has_room { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl Drop for RoomWait<'_> {
    fn drop(&mut self) {
        if process::is_forked() {
            std::mem::forget(self.0.take());
        }
    }
}

impl Inner {
    fn accept(
        self: &Arc<Self>,
        slot: u64,
        ballot: Ballot,
        value: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Ticket, AcceptError> {
        refuse_too_large(&self.options, value)?;
        loop {
            match self.try_accept(slot, ballot, value)? {
                AcceptOutcome::Stored(ticket) | AcceptOutcome::Duplicate(ticket) => {
                    self.checkpoint_if_due();
                    return Ok(ticket);
                }
                AcceptOutcome::Full(more) => {
                    let waited = deadline.is_some_and(|at| self.budget.wait(more, at));
                    if !waited {
                        let (used, size) = (self.budget.used(), self.budget.size());
                        return Err(AcceptError::BufferFull { used, size });
                    }
                }
            }
        }
    }

    fn try_accept(
        self: &Arc<Self>,
        slot: u64,
        ballot: Ballot,
        value: &[u8],
    ) -> Result<AcceptOutcome, AcceptError> {
        let guard = crossbeam_epoch::pin();
        let proposal = Proposal { slot, ballot, value };
        let mut evicted = None;
        loop {
            match self.accept_in_memory(proposal, evicted.as_ref(), &guard)? {
                Some(outcome) => return Ok(outcome),
                None => evicted = self.entry_of(slot, &guard)?,
            }
        }
    }

    /// Attempts to accept a value. `None` if the slot is committed with a value that is not in
    /// memory, and not in `evicted`.
    fn accept_in_memory(
        self: &Arc<Self>,
        proposal: Proposal<'_>,
        evicted: Option<&Entry<'_>>,
        guard: &Guard,
    ) -> Result<Option<AcceptOutcome>, AcceptError> {
        let Proposal { slot, ballot, .. } = proposal;
        self.load_page(slot, guard);
        let promise_state = self.slot_lock(slot)?;
        if ballot <= promise_state.promise && promise_state.is_promised {
            return self.accept_at(&promise_state, proposal, evicted, guard);
        }
        drop(promise_state);
        let mut locks = self.all_locks()?;
        let promise_state = locks.promise_state();
        let attempt = self.accept_at(&promise_state, proposal, evicted, guard)?;
        if let Some(AcceptOutcome::Stored(_)) = attempt {
            locks.promise(promise_state.promise.max(ballot), !self.is_volatile());
        }
        Ok(attempt)
    }

    /// Returns the acknowledgement of a value that the slot has already.
    fn acknowledge_again(
        self: &Arc<Self>,
        word: Word,
        marker: u64,
    ) -> Result<Ticket, StorageError> {
        let committed = word.state() == State::Committed;
        if committed && self.is_volatile() {
            self.commit_ticket_of(marker)
        } else if committed {
            // An accept is acknowledged only when durable, even with `sync_on_commit` off.
            self.ticket_of(marker)
        } else {
            self.ticket_of(word.seq())
        }
    }

    /// The first slot that is out of range. Refuses a slot below the floor, and one out of range.
    fn limit_above(&self, slot: u64) -> Result<Slot, AcceptError> {
        if let Some(floor) = self.floor_over(slot) {
            return Err(AcceptError::Truncated { floor });
        }
        let limit = self.slot_limit();
        if slot < limit.0 {
            Ok(limit)
        } else {
            Err(AcceptError::SlotOutOfRange { slot: Slot(slot), limit })
        }
    }

    /// Accepts a value, if there is room. The caller holds the slot's lock. `None` as for
    /// [`Inner::accept_in_memory`].
    #[inline]
    fn accept_at(
        self: &Arc<Self>,
        promise_state: &PromiseState,
        proposal: Proposal<'_>,
        evicted: Option<&Entry<'_>>,
        guard: &Guard,
    ) -> Result<Option<AcceptOutcome>, AcceptError> {
        let Proposal { slot, ballot, value } = proposal;
        self.writable(promise_state)?;
        let limit = self.limit_above(slot)?;
        if ballot < promise_state.promise && self.page(slot, guard)?.is_none() {
            return Err(AcceptError::StaleBallot { promised: promise_state.promise });
        }
        let Some(page) = self.page_for(slot, guard)? else {
            return Err(AcceptError::SlotOutOfRange { slot: Slot(slot), limit });
        };
        let indexed = page.slot(slot);
        let word = indexed.word();
        let resident = indexed.resident().load(guard);
        if word.state() == State::Accepted && resident.is_none() {
            return Err(self.broken("an uncommitted value is in memory").into());
        }
        let accepted = resident.as_ref().map_or(Ballot::ZERO, |resident| resident.ballot);
        debug_assert!(
            word.state() != State::Accepted
                || accepted <= promise_state.promise
                || is_planted(Bug::PromiseLostOnTruncation),
            "an entry was accepted under a ballot that was never promised"
        );
        let current = SlotState { state: word.state(), ballot: accepted };
        match rules::accept(promise_state.promise, current, ballot) {
            AcceptDecision::Stale(promised) => Err(AcceptError::StaleBallot { promised }),
            AcceptDecision::Compare => {
                let marker = resident.as_ref().map_or(0, |resident| resident.marker());
                // A committed value never changes, so one that was read without the lock is it.
                let entry = match (resident, evicted) {
                    (Some(resident), _) => Entry::borrowed(resident, false),
                    (None, Some(evicted)) => evicted.clone(),
                    (None, None) => return Ok(None),
                };
                if entry.value() != value {
                    return Err(refused(entry, word.state() == State::Committed, ballot));
                }
                Ok(Some(AcceptOutcome::Duplicate(self.acknowledge_again(word, marker)?)))
            }
            AcceptDecision::Store => {
                debug_assert_ne!(word.state(), State::Committed, "a committed slot never changes");
                debug_assert!(
                    ballot >= promise_state.promise || is_planted(Bug::LowerBallotAccepted),
                    "a stale ballot is accepted"
                );
                self.store(&page, resident, proposal, guard).map(Some)
            }
        }
    }

    /// Stores a value in its slot, in place of the one that is `resident`, if there is room. The
    /// caller holds the slot's lock.
    #[inline]
    fn store(
        self: &Arc<Self>,
        page: &Page,
        resident: Option<Borrowed<'_, SharedValue>>,
        Proposal { slot, ballot, value }: Proposal<'_>,
        guard: &Guard,
    ) -> Result<AcceptOutcome, AcceptError> {
        let indexed = page.slot(slot);
        // A value that replaces another takes over its bytes, so that a new leader is never refused
        // because of an old leader's values.
        let before = resident.as_ref().map_or(0, |resident| charge(resident.len()));
        let bytes = charge(value.len());
        let more = bytes.saturating_sub(before);
        if more > 0 && !self.budget.reserve(more) {
            return Ok(AcceptOutcome::Full(more));
        }
        let (seq, ticket) = if self.is_volatile() {
            (0, Ticket::READY)
        } else {
            match self.append(|out| record::accept(out, slot, ballot, value)) {
                Ok(ticket) => (ticket.seq().0, Ticket::new(ticket, self.failure_sink())),
                Err(error) => {
                    self.budget.release(more);
                    return Err(error.into());
                }
            }
        };
        self.budget.release(before.saturating_sub(bytes));
        if resident.is_none() {
            self.index.open.enter(page.number, &page.open);
        }
        indexed.put(Some(new_value(slot, ballot, value, 0)), before, guard);
        indexed.set_word(Word::accepted(seq).sized(value.len()));
        page.touch();
        Ok(AcceptOutcome::Stored(ticket))
    }
}

/// Refuses a value that these options never accept.
fn refuse_too_large(options: &Options, value: &[u8]) -> Result<(), AcceptError> {
    match exceeded_limit(options, value.len()) {
        Some(limit) => Err(AcceptError::EntryTooLarge { size: value.len() as u64, limit }),
        None => Ok(()),
    }
}

/// The error for a slot whose entry differs from the proposed value.
fn refused(entry: Entry<'_>, committed: bool, ballot: Ballot) -> AcceptError {
    if committed {
        AcceptError::AlreadyCommitted { entry: Box::new(entry.into_committed()) }
    } else {
        AcceptError::AnotherValue { slot: entry.slot(), ballot }
    }
}
