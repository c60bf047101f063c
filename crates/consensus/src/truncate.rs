//! Dropping slots at both ends.
//!
//! # The crash argument
//!
//! The floor is raised by a record that is durable before a slot is forgotten. Space comes back by
//! whole segments: what is still wanted of those that may go, committed or not, is appended again
//! under the slot's lock, only if the index still names the old place, and the index names the new
//! place once that is durable. Then a checkpoint, durable with its app metadata, says where everything is,
//! promise and floor included, and only then the log drops its prefix. A crash before that leaves
//! copies that say again what is so; a crash behind it leaves the app metadata whose root stands above the cut.

use std::sync::Arc;

use crossbeam_epoch::Guard;
use esker_log::Span;

use crate::error::{Error, Result};
use crate::log::{ConsensusLog, Inner};
use crate::page::{Page, State, number_of};
use crate::record;
use crate::region::charge;

/// The most bytes of values appended again before they are made durable.
const COPIED: u64 = 4 << 20;

/// A value that was appended again: its slot, where it stood, where it stands now.
type Moved = (u64, u64, u64);

impl ConsensusLog {
    /// Drops every slot below this one, durably. They have to be committed, and a snapshot that was
    /// read back has to have them: this call does not know about snapshots. Space is freed by whole
    /// segments, and takes copying at most half of what it frees.
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
        inner.try_to_free_space();
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

impl Inner {
    /// Drops the oldest segments, if that can be done. The floor is durable whatever comes of it, and
    /// the next truncation tries again.
    pub(crate) fn try_to_free_space(&self) {
        if let Err(error) = self.free_space() {
            tracing::warn!(%error, "no space was freed below the floor");
        }
    }

    /// Drops the oldest segments, as far as that is worth the copying.
    pub(crate) fn free_space(&self) -> Result<()> {
        let _upkeep = self.upkeep.lock();
        let spans = self.log.segments();
        // The newest is written to.
        let Some((_, full)) = spans.split_last() else { return Ok(()) };
        if full.is_empty() {
            return Ok(());
        }
        let guard = crossbeam_epoch::pin();
        let Some(cut) = self.worth_dropping(full, &guard)? else { return Ok(()) };
        drop(guard);
        self.copy_forward(cut)?;
        self.checkpoint(true)?;
        self.log.truncate_before(cut).map_err(|error| self.fail(error))
    }

    /// The number of the first record to stay: behind the last of the segments that hold, together
    /// with those before them, at most half as much wanted as unwanted.
    fn worth_dropping(&self, full: &[Span], guard: &Guard) -> Result<Option<u64>> {
        let mut wanted = vec![0u64; full.len()];
        self.each_stored(guard, |_, _, seq| {
            let at = full.partition_point(|span| span.last.0 < seq);
            if let Some(count) = wanted.get_mut(at) {
                *count += 1;
            }
        })?;
        let (mut bytes, mut copied, mut cut) = (0, 0, None);
        for (span, wanted) in full.iter().zip(wanted) {
            let records = (span.last.0 - span.after.0).max(1);
            bytes += span.bytes;
            copied += (u128::from(span.bytes) * u128::from(wanted) / u128::from(records)) as u64;
            if copied <= bytes / 2 {
                cut = Some(span.last.0 + 1);
            }
        }
        Ok(cut)
    }

    /// Visits every slot whose value stands in the log, with the number of the record.
    fn each_stored(
        &self,
        guard: &Guard,
        mut visit: impl FnMut(&Arc<Page>, u64, u64),
    ) -> Result<()> {
        let start = self.start();
        for number in self.index.numbers(number_of(start), guard) {
            let Some(page) = self.page(number, guard)? else { continue };
            for (slot, place) in page.from(start) {
                let word = place.word();
                if word.state() != State::Empty && word.seq() > 0 {
                    visit(&page, slot, word.seq());
                }
            }
        }
        Ok(())
    }

    /// Appends everything wanted that stands before the cut again, durably.
    fn copy_forward(&self, cut: u64) -> Result<()> {
        let mut wanted = Vec::new();
        self.each_stored(&crossbeam_epoch::pin(), |_, slot, seq| {
            if seq < cut {
                wanted.push(slot);
            }
        })?;
        let mut moved: Vec<Moved> = Vec::new();
        let (mut tickets, mut bytes) = (Vec::new(), 0);
        for slot in wanted {
            // A guard that is held over a sync keeps memory from being used again.
            if let Some((ticket, from, len)) = self.copy(slot, cut, &crossbeam_epoch::pin())? {
                moved.push((slot, from, ticket.seq().0));
                tickets.push(ticket);
                bytes += len;
            }
            if bytes >= COPIED {
                self.settle_copies(&mut tickets, &mut moved)?;
                bytes = 0;
            }
        }
        self.settle_copies(&mut tickets, &mut moved)
    }

    /// Appends a slot's value again, if it still stands before the cut.
    fn copy(
        &self,
        slot: u64,
        cut: u64,
        guard: &Guard,
    ) -> Result<Option<(esker_log::Ticket, u64, u64)>> {
        let terms = self.gate.of_slot(slot);
        self.writable(&terms)?;
        let Some(page) = self.page(number_of(slot), guard)? else { return Ok(None) };
        let place = page.slot(slot);
        let word = place.word();
        if word.state() == State::Empty || word.seq() == 0 || word.seq() >= cut {
            return Ok(None);
        }
        let entry = self.entry_at(slot, place, guard)?;
        let (ballot, value) = (entry.ballot(), entry.value());
        let ticket = if word.state() == State::Committed {
            self.append(|out| record::chosen(out, slot, ballot, value))?
        } else {
            self.append(|out| record::accept(out, slot, ballot, value))?
        };
        Ok(Some((ticket, word.seq(), value.len() as u64)))
    }

    /// The index names the new places, once they are durable, wherever it still names the old ones.
    fn settle_copies(
        &self,
        tickets: &mut Vec<esker_log::Ticket>,
        moved: &mut Vec<Moved>,
    ) -> Result<()> {
        let Some(last) = tickets.pop() else { return Ok(()) };
        last.wait().map_err(|error| self.fail(error))?;
        tickets.clear();
        let guard = crossbeam_epoch::pin();
        for (slot, from, to) in moved.drain(..) {
            let _terms = self.gate.of_slot(slot);
            let Some(page) = self.page(number_of(slot), &guard)? else { continue };
            let place = page.slot(slot);
            let word = place.word();
            if word.seq() == from && word.state() != State::Empty {
                place.set_word(word.moved(to));
                page.touch();
            }
        }
        Ok(())
    }
}
