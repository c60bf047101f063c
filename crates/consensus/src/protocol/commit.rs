//! Phase 3: commit.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::base::ballot::Ballot;
use crate::base::slot::{SLOTS_PER_PAGE, Slot, page_of};
use crate::errors::protocol_errors::CommitError;
use crate::index::page::{IndexEntry, Page, State};
use crate::index::slot_locks::AllLocks;
use crate::memory::value_budget::charge;
use crate::outcome::Ticket;
use crate::protocol::rules::{self, CommitDecision, SlotState};
use crate::record;
use crate::state::inner::{ConsensusLog, Inner};
use crate::storage_error::StorageError;

/// The most slots in one marker.
const MARKER_SLOTS_MAX: usize = 1 << 20;

/// The acknowledgement of a batch of commits.
#[derive(Debug)]
#[must_use = "the commits are durable when the ticket has resolved"]
pub struct BatchTicket {
    /// The result for each slot, in the order given.
    pub results: Vec<Result<(), CommitError>>,
    /// The acknowledgement of every commit whose result is `Ok`.
    pub ticket: Ticket,
}

impl ConsensusLog {
    /// Commits the value accepted in a slot under this ballot. The slot never changes again. Once
    /// the ticket has resolved, [`read_committed`](ConsensusLog::read_committed) returns it. Slots
    /// may be committed in any order; a committed slot may be committed again.
    ///
    /// # Errors
    /// [`CommitError::SlotNotFound`]; [`CommitError::BallotMismatch`] when the slot is accepted
    /// under another ballot; [`CommitError::Truncated`], [`CommitError::Storage`]. In each case
    /// nothing was committed.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.accept(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// log.commit(Slot(0), ballot)?.blocking_wait()?;
    /// assert_eq!(log.frontier(), Some(Slot(0)));
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn commit(&self, slot: Slot, ballot: Ballot) -> Result<Ticket, CommitError> {
        let ticket = self.inner.commit(slot.0, ballot)?;
        self.inner.checkpoint_if_due();
        Ok(ticket)
    }

    /// Commits several slots with one sync, and returns a result for each.
    ///
    /// # Errors
    /// [`StorageError`]: nothing was committed. Errors of single slots are in the results.
    pub fn commit_batch(&self, slots: &[(Slot, Ballot)]) -> Result<BatchTicket, StorageError> {
        let done = self.inner.commit_batch(slots)?;
        self.inner.checkpoint_if_due();
        Ok(done)
    }

    /// Commits every accepted slot up to and including this one, under any ballot: for protocols
    /// that match logs before they commit, as Raft does.
    ///
    /// # Errors
    /// [`CommitError::Gap`] when a slot between the frontier and this one is missing, and
    /// [`CommitError::Storage`]: nothing was committed.
    pub fn commit_through(&self, slot: Slot) -> Result<Ticket, CommitError> {
        let ticket = self.inner.commit_through(slot.0)?;
        self.inner.checkpoint_if_due();
        Ok(ticket)
    }
}

impl Inner {
    fn commit(self: &Arc<Self>, slot: u64, ballot: Ballot) -> Result<Ticket, CommitError> {
        let guard = crossbeam_epoch::pin();
        self.load_page(slot, &guard);
        let promise_state = self.slot_lock(slot)?;
        self.writable(&promise_state)?;
        if let Some(floor) = self.floor_over(slot) {
            return Err(CommitError::Truncated { floor });
        }
        let Some(page) = self.page(slot, &guard)? else {
            return Err(CommitError::SlotNotFound { slot: Slot(slot) });
        };
        let indexed = page.slot(slot);
        let Some(known) = self.to_mark(slot, indexed, Some(ballot), &guard)? else {
            let marker = indexed.resident().load(&guard).map_or(0, |resident| resident.marker());
            return Ok(self.commit_ticket_of(marker)?);
        };
        let word = indexed.word();
        let ticket = if word.seq() > 0 {
            self.append(|out| record::commit(out, &[(slot, known.ballot)]))?
        } else {
            // Only memory has the value: append it now, as committed.
            let Some(resident) = indexed.resident().load(&guard) else {
                return Err(self.broken("an uncommitted value is in memory").into());
            };
            self.append(|out| record::chosen(out, slot, known.ballot, resident.value()))?
        };
        let seq = ticket.seq().0;
        let stored_at = if word.seq() > 0 { word.seq() } else { seq };
        let pending = self.mark(&page, indexed, slot, seq, stored_at, &guard);
        drop(promise_state);
        self.count_durable_if_many(pending, &guard);
        Ok(self.commit_ticket(ticket))
    }

    /// The value to commit in a slot; `None` if the slot is committed already.
    fn to_mark(
        &self,
        slot: u64,
        indexed: &IndexEntry,
        ballot: Option<Ballot>,
        guard: &Guard,
    ) -> Result<Option<SlotState>, CommitError> {
        let (state, resident) = (indexed.word().state(), indexed.resident().load(guard));
        if state == State::Accepted && resident.is_none() {
            return Err(self.broken("an uncommitted value is in memory").into());
        }
        let accepted = resident.map_or(Ballot::ZERO, |resident| resident.ballot);
        let current = SlotState { state, ballot: accepted };
        match rules::commit(current, ballot) {
            CommitDecision::Mark => {
                debug_assert_eq!(state, State::Accepted, "only an accepted slot is committed");
                Ok(Some(current))
            }
            CommitDecision::Done => Ok(None),
            CommitDecision::Missing => Err(CommitError::SlotNotFound { slot: Slot(slot) }),
            CommitDecision::Mismatch(accepted) => {
                Err(CommitError::BallotMismatch { slot: Slot(slot), accepted })
            }
        }
    }

    /// Applies the commit of an accepted slot whose marker was appended. Returns how many commits
    /// are pending. The caller holds the slot's lock.
    fn mark(
        &self,
        page: &Page,
        indexed: &IndexEntry,
        slot: u64,
        marker: u64,
        seq: u64,
        guard: &Guard,
    ) -> usize {
        debug_assert!(marker >= seq, "a marker precedes the value that it commits");
        let resident = indexed.resident().load(guard);
        debug_assert!(resident.is_some(), "an uncommitted value is in memory");
        let bytes = resident.map_or(0, |resident| {
            resident.commit(marker);
            charge(resident.len())
        });
        indexed.set_word(indexed.word().commit(seq));
        page.touch();
        page.count_commit();
        page.open.leave();
        self.budget.release(bytes);
        self.frontier.lock().committed(marker, slot, bytes)
    }

    fn commit_batch(
        self: &Arc<Self>,
        slots: &[(Slot, Ballot)],
    ) -> Result<BatchTicket, StorageError> {
        let guard = crossbeam_epoch::pin();
        slots.iter().for_each(|(slot, _)| self.load_page(slot.0, &guard));
        let locks = self.all_locks()?;
        self.writable(&locks.promise_state())?;
        let mut results = Vec::with_capacity(slots.len());
        let mut marks = Vec::new();
        for (slot, ballot) in slots {
            let known = match self.batch_mark(slot.0, *ballot, &guard) {
                Err(CommitError::Storage(failed @ StorageError::Internal { .. })) => {
                    return Err(failed);
                }
                known => known,
            };
            if let Ok(true) = known {
                marks.push(slot.0);
            }
            results.push(known.map(drop));
        }
        let ticket = self.mark_all(&locks, marks, None, &guard)?;
        drop(locks);
        Ok(BatchTicket { results, ticket })
    }

    /// Whether this slot needs a commit marker.
    fn batch_mark(&self, slot: u64, ballot: Ballot, guard: &Guard) -> Result<bool, CommitError> {
        if let Some(floor) = self.floor_over(slot) {
            return Err(CommitError::Truncated { floor });
        }
        let page = self.page(slot, guard)?.ok_or(CommitError::SlotNotFound { slot: Slot(slot) })?;
        Ok(self.to_mark(slot, page.slot(slot), Some(ballot), guard)?.is_some())
    }

    fn commit_through(self: &Arc<Self>, last: u64) -> Result<Ticket, CommitError> {
        self.load_through(last);
        let guard = crossbeam_epoch::pin();
        let locks = self.all_locks()?;
        self.writable(&locks.promise_state())?;
        self.count_in_memory(&guard);
        let first = self.frontier.lock().decided();
        let mut marks = Vec::new();
        let mut slot = first;
        // Ends at the first slot without an entry at the latest.
        while slot <= last {
            let Some(page) = self.page(slot, &guard)? else {
                return Err(CommitError::Gap { slot: Slot(slot) });
            };
            for (number, indexed) in page.from(slot).take_while(|(number, _)| *number <= last) {
                match indexed.word().state() {
                    State::Empty => return Err(CommitError::Gap { slot: Slot(number) }),
                    State::Accepted => marks.push(number),
                    State::Committed => {}
                }
            }
            let Some(next) = (page_of(slot) + 1).checked_mul(SLOTS_PER_PAGE as u64) else {
                break;
            };
            slot = next;
        }
        let range = marks.first().map(|first| (*first, last));
        let ticket = self.mark_all(&locks, marks, range, &guard)?;
        drop(locks);
        Ok(ticket)
    }

    /// Reads the pages from the frontier to a slot, as [`Inner::load_page`].
    fn load_through(&self, last: u64) {
        let guard = crossbeam_epoch::pin();
        let mut slot = self.frontier.lock().decided();
        // Ends at the first page that is missing at the latest.
        while slot <= last
            && let Ok(Some(page)) = self.page(slot, &guard)
            && let Some(next) = (page.number + 1).checked_mul(SLOTS_PER_PAGE as u64)
        {
            slot = next;
        }
    }

    /// Appends the markers of accepted slots, and the values that only memory has, and marks the
    /// slots committed. `range` is given if `slots` holds every accepted slot in it.
    fn mark_all(
        self: &Arc<Self>,
        _all_locks: &AllLocks<'_>,
        mut slots: Vec<u64>,
        range: Option<(u64, u64)>,
        guard: &Guard,
    ) -> Result<Ticket, StorageError> {
        slots.sort_unstable();
        slots.dedup();
        if slots.is_empty() {
            return self.commit_ticket_of(self.log.accepted().0);
        }
        let mut records = Vec::new();
        let mut pairs = Vec::new();
        let mut pages = Vec::with_capacity(slots.len());
        for slot in &slots {
            let page = self.known_page(*slot, guard)?;
            let indexed = page.slot(*slot);
            let Some(resident) = indexed.resident().load(guard) else {
                return Err(self.broken("an uncommitted value is in memory"));
            };
            let ballot = resident.ballot;
            if indexed.word().seq() > 0 {
                pairs.push((*slot, ballot));
                pages.push((page, None));
            } else {
                let mut out = Vec::new();
                record::chosen(&mut out, *slot, ballot, resident.value());
                pages.push((page, Some(records.len())));
                records.push(out);
            }
        }
        let values = records.len();
        match range {
            // One record commits the whole range.
            Some((first, last)) if values == 0 => {
                debug_assert!(first <= last, "a range of commits ends before it starts");
                let mut out = Vec::new();
                record::through(&mut out, first, last);
                records.push(out);
            }
            _ => records.extend(pairs.chunks(MARKER_SLOTS_MAX).map(|pairs| {
                let mut out = Vec::new();
                record::commit(&mut out, pairs);
                out
            })),
        }
        // A checkpoint may append records between these.
        let mut tickets = self.append_all(&records)?;
        let Some(ticket) = tickets.pop() else {
            return Err(self.broken("a commit of accepted slots has a record"));
        };
        let last = ticket.seq().0;
        let record = |nth: usize| tickets.get(nth).map_or(last, |ticket| ticket.seq().0);
        let mut pending = 0;
        for (slot, (page, value)) in slots.iter().zip(pages) {
            let indexed = page.slot(*slot);
            let (marker, seq) = match value {
                Some(nth) => (record(nth), record(nth)),
                None => (last, indexed.word().seq()),
            };
            pending = self.mark(&page, indexed, *slot, marker, seq, guard);
        }
        if self.is_count_due(pending) {
            self.count_in_memory(guard);
        }
        // The last ticket acknowledges all of them. Dropping one would request a sync.
        tickets.into_iter().for_each(esker_log::Ticket::detach);
        Ok(self.commit_ticket(ticket))
    }
}
