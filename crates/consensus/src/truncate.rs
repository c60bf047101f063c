//! Dropping slots at both ends.
//!
//! # The crash argument
//!
//! The floor is raised by a record that is durable before a slot is forgotten. Space is reclaimed after
//! that, by whole segments and in the background: see `reclaim`.

use crate::error::{Error, Result};
use crate::log::ConsensusLog;
use crate::page::number_of;
use crate::record;
use crate::region::charge;

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
        let inner = &self.inner;
        inner.settle(&crossbeam_epoch::pin());
        let next = inner.settled.lock().next();
        if slot > next {
            return Err(Error::Gap { slot: next });
        }
        inner.raise(slot, slot)?;
        inner.reclaim_soon();
        Ok(())
    }

    /// Drops what is accepted above a slot, durably: for protocols that overwrite a log's suffix, as
    /// Raft does. Promises stay. For Paxos this is never right: it forgets accepts.
    ///
    /// # Errors
    /// [`Error::BelowFrontier`] when a slot above it is committed: nothing was dropped.
    /// [`Error::Truncated`] below the floor; [`Error::ReadOnly`], [`Error::Closed`], [`Error::Log`].
    pub fn truncate_after(&self, slot: u64) -> Result<()> {
        let inner = &self.inner;
        let guard = crossbeam_epoch::pin();
        let gate = inner.gate.alone();
        inner.writable(&gate.terms())?;
        inner.settle(&guard);
        let (next, highest) = inner.settled.lock().next_and_highest();
        let decided = next.checked_sub(1).max(highest);
        if let Some(committed) = decided.filter(|committed| *committed > slot) {
            return Err(Error::BelowFrontier { committed });
        }
        let start = inner.start();
        if slot.checked_add(1).is_some_and(|first| first < start) {
            return Err(Error::Truncated { floor: start - 1 });
        }
        let mut dropped = Vec::new();
        inner.each_uncommitted(slot.saturating_add(1), &guard, |slot, held| {
            dropped.push((slot, charge(held.len())));
        });
        dropped.retain(|(other, _)| *other > slot);
        if dropped.is_empty() {
            return Ok(());
        }
        let ticket = inner.append(|out| record::cut(out, slot))?;
        ticket.wait().map_err(|error| inner.fail(error))?;
        for (slot, bytes) in dropped {
            if let Some(page) = inner.page(number_of(slot), &guard)? {
                page.clear(page.slot(slot), &guard);
                inner.region.release(bytes);
            }
        }
        Ok(())
    }
}
