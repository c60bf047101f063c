//! Truncation: dropping slots at either end.
//!
//! # Before the record is durable
//!
//! The record raises the floor, or cuts the suffix. It is appended under all slot locks, and the
//! slots are emptied under the same locks. The caller then waits for durability without a lock.
//! Meanwhile:
//!
//! - *Later decisions* see the new floor or cut, and append later records. So nothing that follows
//!   from it is acknowledged before it is durable: an accept into an emptied slot, a promise's
//!   answer, a commit.
//! - *Refusals* because of it acknowledge nothing. A crash may bring the slots back, as if the call
//!   had never been made. That is safe. Each slot below a floor is decided without this record: it
//!   was durably committed before, or a durable snapshot has it. The entries above a cut were given
//!   up by the caller's protocol, which has no answer yet.
//! - *Values reported without a ticket* are durable: `floor`, `frontier`, a watch and the
//!   statistics do not show the change yet. Reads and iterations refuse slots below the new floor
//!   at once.
//! - *A second call* that needs no further change waits for the same record.
//!
//! If the sync fails, the log accepts nothing more, and reopening decides.
//!
//! # The crash argument
//!
//! Space is reclaimed after the record of the floor is durable, in the background and by whole
//! segments: see `reclaim`.

use std::sync::Arc;

use crate::base::slot::Slot;
use crate::errors::protocol_errors::TruncateError;
use crate::index::page::State;
use crate::memory::value_budget::charge;
use crate::outcome::Ticket;
use crate::protocol::floor::FloorTicket;
use crate::record;
use crate::state::inner::{ConsensusLog, Inner};
use crate::storage_error::refuse_if_forked;

impl ConsensusLog {
    /// Drops every slot below this one. Each of them must be committed, and be in a snapshot that
    /// was read back: this call does not check snapshots;
    /// [`Snapshots::truncate_through`](crate::Snapshots::truncate_through) does.
    ///
    /// # Durability
    /// Durable when the ticket has resolved. Space is reclaimed in the background, by whole
    /// segments. To wait for that, call [`Maintenance::reclaim`](crate::Maintenance::reclaim).
    ///
    /// # Errors
    /// [`TruncateError::Gap`] when a slot below is not committed; [`TruncateError::Storage`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.learn(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// log.truncate_before(Slot(1))?.blocking_wait()?; // drops slot 0
    /// assert_eq!(log.floor(), Some(Slot(0)));
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn truncate_before(&self, slot: Slot) -> Result<FloorTicket, TruncateError> {
        self.inner.truncate_before(slot, None)
    }

    /// Drops the entries accepted from a slot on: for protocols that overwrite a log's suffix, as
    /// Raft does. Promises stay. Never use it with Paxos: it forgets accepts. To keep a slot and
    /// drop those after it, pass [`Slot::next`] of that slot.
    ///
    /// # Durability
    /// Durable when the ticket has resolved. Dropping the ticket does not undo the call.
    ///
    /// # Errors
    /// [`TruncateError::BelowFrontier`] when one of these slots is committed: nothing was dropped.
    /// [`TruncateError::Truncated`] at or below the floor; [`TruncateError::Storage`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, ReadError, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.accept(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// log.truncate_from(Slot(0))?.blocking_wait()?;
    /// assert!(matches!(log.read(Slot(0), &log.pin()), Err(ReadError::SlotNotFound { .. })));
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn truncate_from(&self, slot: Slot) -> Result<Ticket, TruncateError> {
        self.inner.cut(slot.0)
    }
}

impl Inner {
    /// Appends the record that drops the entries accepted from a slot on, and drops them.
    pub(crate) fn cut(self: &Arc<Self>, from: u64) -> Result<Ticket, TruncateError> {
        refuse_if_forked()?;
        let guard = crossbeam_epoch::pin();
        self.count_durable(&guard);
        let locks = self.all_locks()?;
        self.writable(&locks.promise_state())?;
        // Before the check of the frontier, which is never below the floor.
        if let Some(floor) = self.floor_over(from) {
            return Err(TruncateError::Truncated { floor });
        }
        let (next, highest) = self.frontier.lock().next_and_highest();
        let decided = next.checked_sub(1).max(highest);
        if let Some(committed) = decided.filter(|committed| *committed >= from) {
            return Err(TruncateError::BelowFrontier { committed: Slot(committed) });
        }
        let mut dropped = Vec::new();
        self.each_uncommitted(from, &guard, |slot, resident| {
            dropped.push((slot, charge(resident.len())));
        });
        dropped.retain(|(slot, _)| *slot >= from);
        if dropped.is_empty() {
            drop(locks);
            // The caller that dropped them may still be waiting.
            return Ok(self.ticket_of(self.records.newest_cut())?);
        }
        let ticket = self.append_internal(|out| record::cut(out, from))?;
        self.records.set_newest_cut(ticket.seq().0);
        for (slot, bytes) in dropped {
            let page = self.known_page(slot, &guard)?;
            let indexed = page.slot(slot);
            debug_assert_eq!(indexed.word().state(), State::Accepted, "a cut drops a decided slot");
            page.clear(indexed, &guard);
            self.budget.release(bytes);
        }
        Ok(Ticket::new(ticket, self.failure_sink()))
    }
}
