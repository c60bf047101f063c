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
use std::sync::atomic::Ordering::Relaxed;

use crate::base::slot::Slot;
use crate::memory::value_budget::charge;
use crate::outcome::Ticket;
use crate::outcome::{Error, Result, refuse_if_forked};
use crate::record;
use crate::state::inner::{ConsensusLog, Inner};

impl ConsensusLog {
    /// Drops every slot below this one, durably. Each of them must be committed, and be in a
    /// snapshot that was read back: this call does not check snapshots.
    ///
    /// Blocks until the floor is durable. Space is reclaimed in the background, by whole segments.
    /// To wait for it, call [`ConsensusLog::reclaim`].
    ///
    /// # Errors
    /// [`Error::Gap`] when a slot below is not committed; [`Error::ReadOnly`], [`Error::Closed`],
    /// [`Error::Log`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.learn(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// log.truncate_before(Slot(1))?; // drops slot 0
    /// assert_eq!(log.floor(), Some(Slot(0)));
    /// # log.close()
    /// # }
    /// ```
    pub fn truncate_before(&self, slot: Slot) -> Result<()> {
        self.raise_to(slot.0, None)?.blocking_wait()?;
        self.inner.raised();
        Ok(())
    }

    /// As [`ConsensusLog::truncate_before`], waiting without blocking.
    ///
    /// # Cancel safety
    /// The first poll appends the record. Dropping the future after that does not undo it: the
    /// slots are dropped, and durably once a later record is durable. Reclaiming then waits for the
    /// next truncation.
    ///
    /// # Errors
    /// As [`ConsensusLog::truncate_before`].
    pub async fn truncate_before_async(&self, slot: Slot) -> Result<()> {
        self.raise_to(slot.0, None)?.await?;
        self.inner.raised();
        Ok(())
    }

    /// As [`ConsensusLog::truncate_before`], and replaces the state of the application with it, in
    /// one record: see [`ConsensusLog::set_app_state`].
    ///
    /// # Errors
    /// As [`ConsensusLog::truncate_before`] and [`ConsensusLog::set_app_state`].
    pub fn truncate_before_with(&self, slot: Slot, app_state: &[u8]) -> Result<()> {
        self.raise_to(slot.0, Some(app_state))?.blocking_wait()?;
        self.inner.raised();
        Ok(())
    }

    /// As [`ConsensusLog::truncate_before_with`], waiting without blocking.
    ///
    /// # Cancel safety
    /// As [`ConsensusLog::truncate_before_async`].
    ///
    /// # Errors
    /// As [`ConsensusLog::truncate_before_with`].
    pub async fn truncate_before_with_async(&self, slot: Slot, app_state: &[u8]) -> Result<()> {
        self.raise_to(slot.0, Some(app_state))?.await?;
        self.inner.raised();
        Ok(())
    }

    fn raise_to(&self, slot: u64, app_state: Option<&[u8]>) -> Result<Ticket> {
        refuse_if_forked()?;
        self.inner.count_durable(&crossbeam_epoch::pin());
        let next = self.inner.tracker.lock().decided();
        if slot > next {
            Err(Error::Gap { slot: Slot(next) })
        } else {
            self.inner.raise(slot, slot, app_state)
        }
    }

    /// Drops the entries accepted from a slot on, durably: for protocols that overwrite a log's
    /// suffix, as Raft does. Promises stay. Never use it with Paxos: it forgets accepts.
    /// Blocks until this is durable.
    ///
    /// # Errors
    /// [`Error::BelowFrontier`] when one of these slots is committed: nothing was dropped.
    /// [`Error::Truncated`] at or below the floor; [`Error::ReadOnly`], [`Error::Closed`],
    /// [`Error::Log`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.accept(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// log.truncate_from(Slot(0))?;
    /// assert!(matches!(log.read(Slot(0), &log.pin()), Err(Error::SlotNotFound { .. })));
    /// # log.close()
    /// # }
    /// ```
    pub fn truncate_from(&self, slot: Slot) -> Result<()> {
        self.inner.cut(slot.0)?.blocking_wait()
    }

    /// As [`ConsensusLog::truncate_from`], waiting without blocking.
    ///
    /// # Cancel safety
    /// The first poll appends the record. Dropping the future after that does not undo it: the
    /// slots are empty, and durably once a later record is durable.
    ///
    /// # Errors
    /// As [`ConsensusLog::truncate_from`].
    pub async fn truncate_from_async(&self, slot: Slot) -> Result<()> {
        self.inner.cut(slot.0)?.await
    }

    /// As [`ConsensusLog::truncate_from`] the slot after this one, which is kept. There is no slot
    /// after the last one: then nothing is dropped.
    ///
    /// # Errors
    /// As [`ConsensusLog::truncate_from`].
    pub fn truncate_after(&self, slot: Slot) -> Result<()> {
        self.inner.cut(slot.0.saturating_add(1))?.blocking_wait()
    }

    /// As [`ConsensusLog::truncate_after`], waiting without blocking.
    ///
    /// # Cancel safety
    /// As [`ConsensusLog::truncate_from_async`].
    ///
    /// # Errors
    /// As [`ConsensusLog::truncate_from`].
    pub async fn truncate_after_async(&self, slot: Slot) -> Result<()> {
        self.inner.cut(slot.0.saturating_add(1))?.await
    }
}

impl Inner {
    /// Appends the record that drops the entries accepted from a slot on, and drops them.
    pub(crate) fn cut(self: &Arc<Self>, from: u64) -> Result<Ticket> {
        refuse_if_forked()?;
        let guard = crossbeam_epoch::pin();
        self.count_durable(&guard);
        let locks = self.all_locks()?;
        self.writable(&locks.promise_state())?;
        // Before the check of the frontier, which is never below the floor.
        self.keeps(from)?;
        let (next, highest) = self.tracker.lock().next_and_highest();
        let decided = next.checked_sub(1).max(highest);
        if let Some(committed) = decided.filter(|committed| *committed >= from) {
            return Err(Error::BelowFrontier { committed: Slot(committed) });
        }
        let mut dropped = Vec::new();
        self.each_uncommitted(from, &guard, |slot, resident| {
            dropped.push((slot, charge(resident.len())));
        });
        dropped.retain(|(slot, _)| *slot >= from);
        if dropped.is_empty() {
            drop(locks);
            // The caller that dropped them may still be waiting.
            return self.ticket_of(self.cut_at.load(Relaxed));
        }
        let ticket = self.append_internal(|out| record::cut(out, from))?;
        self.cut_at.store(ticket.seq().0, Relaxed);
        for (slot, bytes) in dropped {
            if let Some(page) = self.page(slot, &guard)? {
                page.clear(page.slot(slot), &guard);
                self.budget.release(bytes);
            }
        }
        Ok(Ticket::new(ticket, self.failing()))
    }
}
