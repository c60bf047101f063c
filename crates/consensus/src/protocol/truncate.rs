//! Dropping slots at both ends.
//!
//! # Before the record is durable
//!
//! A record raises the floor, or cuts the suffix off. It is appended under all locks, the slots are
//! emptied under the same locks, and the caller waits for its durability without any. Meanwhile:
//!
//! - *Who decides* goes by it, and appends a later record. So nothing that follows from a floor or a cut is
//!   acknowledged before it is durable: an accept into an emptied slot, a promise's answer, a commit.
//! - *What is refused* because of it acknowledges nothing, and a crash may bring the slots back, as if
//!   nobody had called. That is safe. Below a floor each slot is decided without this record: it was
//!   durably committed before, or a durable snapshot has it. Above a cut the caller's protocol gave the
//!   entries up, and has no answer yet.
//! - *What is reported* without a ticket is durable: `floor`, `frontier`, a watch and the statistics do
//!   not show it yet. Reads and iterations refuse what is below the new floor at once.
//! - *A second call* that asks for nothing more waits for the same record.
//!
//! When the sync fails, the log takes nothing any more, and reopening decides.
//!
//! # The crash argument
//!
//! Space is reclaimed after the record of the floor is durable, by whole segments and in the
//! background: see `reclaim`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::base::slot::number_of;
use crate::memory::value_budget::charge;
use crate::outcome::Ticket;
use crate::outcome::{Error, Result};
use crate::record;
use crate::state::inner::{ConsensusLog, Inner};

impl ConsensusLog {
    /// Drops every slot below this one, durably. They have to be committed, and a snapshot that was
    /// read back has to have them: this call does not know about snapshots.
    ///
    /// Returns when the floor is durable. Space is reclaimed in the background, by whole segments; see
    /// [`ConsensusLog::reclaim`] for waiting.
    ///
    /// # Errors
    /// [`Error::Gap`] when a slot below is not committed; [`Error::ReadOnly`], [`Error::Closed`],
    /// [`Error::Log`].
    pub fn truncate_before(&self, slot: u64) -> Result<()> {
        self.raise_to(slot)?.wait()?;
        self.inner.count_durable(&crossbeam_epoch::pin());
        self.inner.reclaim_soon();
        Ok(())
    }

    /// As [`ConsensusLog::truncate_before`], waiting without blocking. A future that is dropped before it is
    /// ready leaves reclaiming to the next truncation.
    ///
    /// # Cancel safety
    /// The record is appended by the first poll. A future that is dropped after that takes nothing
    /// back: the slots are gone, and durably so when something later is durable.
    ///
    /// # Errors
    /// As [`ConsensusLog::truncate_before`].
    pub async fn truncate_before_async(&self, slot: u64) -> Result<()> {
        self.raise_to(slot)?.await?;
        self.inner.count_durable(&crossbeam_epoch::pin());
        self.inner.reclaim_soon();
        Ok(())
    }

    fn raise_to(&self, slot: u64) -> Result<Ticket> {
        self.inner.count_durable(&crossbeam_epoch::pin());
        let next = self.inner.tracker.lock().decided();
        if slot > next { Err(Error::Gap { slot: next }) } else { self.inner.raise(slot, slot) }
    }

    /// Drops what is accepted above a slot, durably: for protocols that overwrite a log's suffix, as
    /// Raft does. Promises stay. For Paxos this is never right: it forgets accepts.
    ///
    /// # Errors
    /// [`Error::BelowFrontier`] when a slot above it is committed: nothing was dropped.
    /// [`Error::Truncated`] below the floor; [`Error::ReadOnly`], [`Error::Closed`], [`Error::Log`].
    pub fn truncate_after(&self, slot: u64) -> Result<()> {
        self.inner.cut(slot)?.wait()
    }

    /// As [`ConsensusLog::truncate_after`], waiting without blocking.
    ///
    /// # Cancel safety
    /// The record is appended by the first poll. A future that is dropped after that takes nothing
    /// back: the slots are empty, and durably so when something later is durable.
    ///
    /// # Errors
    /// As [`ConsensusLog::truncate_after`].
    pub async fn truncate_after_async(&self, slot: u64) -> Result<()> {
        self.inner.cut(slot)?.await
    }
}

impl Inner {
    /// Appends the record that drops what is accepted above a slot, and drops it.
    pub(crate) fn cut(self: &Arc<Self>, slot: u64) -> Result<Ticket> {
        let guard = crossbeam_epoch::pin();
        self.count_durable(&guard);
        let locks = self.locks.lock_all();
        self.writable(&locks.promise_state())?;
        let (next, highest) = self.tracker.lock().next_and_highest();
        let decided = next.checked_sub(1).max(highest);
        if let Some(committed) = decided.filter(|committed| *committed > slot) {
            return Err(Error::BelowFrontier { committed });
        }
        let start = self.start();
        if slot.checked_add(1).is_some_and(|first| first < start) {
            return Err(Error::Truncated { floor: start - 1 });
        }
        let mut dropped = Vec::new();
        self.each_uncommitted(slot.saturating_add(1), &guard, |slot, resident| {
            dropped.push((slot, charge(resident.len())));
        });
        dropped.retain(|(other, _)| *other > slot);
        if dropped.is_empty() {
            drop(locks);
            // Whoever dropped it may still be waiting.
            return self.ticket_of(self.cut_at.load(Relaxed));
        }
        let ticket = self.append_internal(|out| record::cut(out, slot))?;
        self.cut_at.store(ticket.seq().0, Relaxed);
        for (slot, bytes) in dropped {
            if let Some(page) = self.page(number_of(slot), &guard)? {
                page.clear(page.slot(slot), &guard);
                self.budget.release(bytes);
            }
        }
        Ok(Ticket::new(ticket, self.failing()))
    }
}
