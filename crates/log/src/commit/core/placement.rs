//! Appending: assigns places to records, or refuses.

use std::sync::Arc;

use super::schedule::Event;
use super::segment_space::Fit;
use super::{
    BrokenInvariant, Core, Frontier, Need, Numbering, Placement, PreallocatedSegment, Refusal,
};
use crate::base::operation_errors::AppendError;
use crate::base::options::Policy;
use crate::base::position::{Position, Seq};
use crate::base::purpose::Purpose;
use crate::format::record::stored_size;
use crate::format::unit::UNIT_HEADER;
use crate::format::{BLOCK_BYTES, Salt, UNIT_MAX, block_up};
use crate::staging::buffer::{BufferSpan, Reservation, StagingBuffer};

/// Holds from the time that room was made until the record is placed.
const UNIT_IS_OPEN: &str = "a unit is open where there is room for a record";

impl Core {
    /// Assigns the next record its place, or returns why not. A refusal changes nothing.
    pub(crate) fn place(
        &mut self,
        numbering: Numbering,
        size: usize,
        purpose: Purpose,
    ) -> Result<Placement, Refusal> {
        self.refuse_if_terminal()?;
        self.check_size(size)?;
        let (seq, prev) = self.number_after(self.marks.last_seq(), numbering)?;
        if purpose.counts() {
            self.check_window()?;
        }
        let stored = stored_size(size);
        let internal = match purpose {
            Purpose::Ordinary | Purpose::Copy => false,
            Purpose::Freeing => self.lends_reserve(),
            Purpose::Internal | Purpose::CopyInReserve => true,
        };
        self.make_room(stored, internal)?;
        if purpose.counts() {
            self.count_append()?;
        }
        if purpose == Purpose::Freeing {
            self.count_lent(stored);
        }
        Ok(self.take(seq, prev, size)?)
    }

    /// Assigns a record of an atomic batch its place. [`Core::prepare_batch`] made room for the
    /// whole batch in one unit, so this never begins another unit. [`Core::check_batch`] checked
    /// its number.
    pub(crate) fn place_prepared(
        &mut self,
        numbering: Numbering,
        size: usize,
    ) -> Result<Placement, BrokenInvariant> {
        let Ok((seq, prev)) = self.number_after(self.marks.last_seq(), numbering) else {
            return Err(self.broken("a batch is checked before its records are placed"));
        };
        self.take(seq, prev, size)
    }

    /// Makes sure that an atomic batch of this many bytes fits in one unit, and counts it as one
    /// append. The [`Core::place_prepared`] calls must follow under the same lock.
    pub(crate) fn prepare_batch(&mut self, stored: u64) -> Result<(), Refusal> {
        self.refuse_if_terminal()?;
        let limit = u64::from(UNIT_MAX - UNIT_HEADER - BLOCK_BYTES);
        if stored > limit {
            return Err(AppendError::BatchTooLarge { size: stored, limit }.into());
        }
        self.check_window()?;
        self.make_room(stored as u32, false)?;
        Ok(self.count_append()?)
    }

    /// Checks the numbers and sizes of a batch before any of it is placed. Returns the bytes that
    /// it takes.
    pub(crate) fn check_batch(
        &self,
        records: impl Iterator<Item = (Numbering, usize)>,
    ) -> Result<u64, AppendError> {
        if let Some(terminal) = &self.terminal {
            return Err(terminal.refusal().into());
        }
        let mut last = self.marks.last_seq();
        let mut stored = 0u64;
        for (numbering, size) in records {
            self.check_size(size)?;
            stored = stored.saturating_add(u64::from(stored_size(size)));
            (last, _) = self.number_after(last, numbering)?;
        }
        Ok(stored)
    }

    fn check_size(&self, size: usize) -> Result<(), AppendError> {
        if size > self.limits.record as usize {
            let limit = u64::from(self.limits.record);
            return Err(AppendError::TooLarge { size: size as u64, limit });
        }
        Ok(())
    }

    /// The number of a record after the record `last`, and the number that it names as the one
    /// before it. If two callers give the same `prev`, the loser gets a conflict while the winner
    /// is not durable. After that, the loser is out of order.
    fn number_after(&self, last: u64, numbering: Numbering) -> Result<(u64, u64), AppendError> {
        let (seq, prev) = match numbering {
            Numbering::Next if last < Seq::MAX.0 => return Ok((last + 1, last)),
            Numbering::Next => (u64::MAX, last),
            Numbering::NextAfter { prev } => (prev.saturating_add(1), prev),
            Numbering::Given { seq, prev } => (seq, prev),
        };
        let is_higher = seq > prev && seq <= Seq::MAX.0;
        // The first record of an empty log may be numbered after any.
        let anywhere = matches!(numbering, Numbering::Given { .. })
            && last == 0
            && self.marks.accepted().0 == 0;
        if is_higher && (prev == last || anywhere) {
            return Ok((seq, prev));
        }
        if is_higher
            && prev < last
            && prev >= self.marks.durable().seq
            && last == self.marks.last_seq()
        {
            return Err(AppendError::Conflict { prev: Seq(prev), last: Seq(last) });
        }
        Err(AppendError::Sequence { seq: Seq(seq), prev: Seq(prev), expected: Seq(last) })
    }

    /// Whether the policy allows one more append that is not durable.
    fn check_window(&mut self) -> Result<(), Refusal> {
        let Policy::Batch(n) = self.policy else {
            return Ok(());
        };
        if self.marks.pending_appends() >= 2 * n.get() - 1 {
            self.on(Event::NoRoom);
            return Err(Refusal::Full);
        }
        Ok(())
    }

    /// Ensures that the open unit has room for this many bytes; if not, seals it and opens another.
    fn make_room(&mut self, stored: u32, internal: bool) -> Result<(), Refusal> {
        let segment_full = self.frontier.records >= self.limits.segment_records;
        let mut offset = self.frontier.offset;
        if let Some(open) = self.units.open() {
            let end = open.end();
            let fits = block_up(end + stored) <= open.buffer.limit;
            let barred = self.frontier.internal && !internal;
            let joins = open.used.saturating_add(stored) <= self.limits.unit;
            if fits && joins && !segment_full && !barred {
                return Ok(());
            }
            offset = block_up(end);
        }
        if self.units.is_full(self.marks.written().unit) {
            return Err(Refusal::Full);
        }

        let need = block_up(UNIT_HEADER + stored);
        let mut frontier = self.frontier;
        frontier.offset = offset;
        let end = frontier.base + u64::from(offset);
        let space = Need { bytes: need, internal };
        let next = match (self.fit(offset, space), self.next) {
            (Fit::Here, _) => None,
            (Fit::Next, Some(next)) => Some(next),
            _ => return Err(Refusal::NeedsSpace(space)),
        };
        if let Some(next) = next {
            frontier = self.frontier_in(next, end);
        }
        let buffer = match self.tail.newest() {
            Some(buffer)
                if buffer.segment == frontier.segment && frontier.offset + need <= buffer.limit =>
            {
                buffer
            }
            _ => self.open_buffer(&frontier, need, end)?,
        };

        if let Some(unit) = self.units.open().map(|open| open.number) {
            self.on(Event::UnitFull { unit });
        }
        self.seal();
        self.frontier = frontier;
        if next.is_some() {
            self.next = None;
            self.units.begin_segment();
        }
        self.units.begin(buffer, self.frontier.offset, self.marks.last_seq());
        Ok(())
    }

    /// The frontier at the start of a segment, which begins at the log's position `base`.
    fn frontier_in(&self, next: PreallocatedSegment, base: u64) -> Frontier {
        let PreallocatedSegment { segment, limit, full, internal } = next;
        let salt = Salt::new(self.log, segment);
        let (offset, records, lent_until) = (BLOCK_BYTES, 0, 0);
        // The share of deletes is one for all segments made from the reserve.
        let frontier = self.frontier;
        let lent = if internal && frontier.internal { frontier.lent } else { 0 };
        Frontier { segment, salt, base, offset, records, limit, full, internal, lent, lent_until }
    }

    /// Opens a staging buffer for at least `need` bytes at the frontier, which is at the log's
    /// position `end`.
    fn open_buffer(
        &mut self,
        frontier: &Frontier,
        need: u32,
        end: u64,
    ) -> Result<Arc<StagingBuffer>, Refusal> {
        let released = self.released().position;
        if self.tail.staged(released) >= self.limits.buffers {
            // Memory must be released before more is accepted.
            self.on(Event::NoRoom);
            return Err(Refusal::Full);
        }
        let usual = frontier.limit.min(frontier.offset.saturating_add(self.limits.buffer));
        let piece = BufferSpan {
            segment: frontier.segment,
            base: frontier.base,
            start: frontier.offset,
            limit: usual.max(frontier.offset + need),
        };
        Ok(self.tail.open(piece, end, self.limits.buffer, released))
    }

    /// Counts an append into the open unit. Its records are taken next.
    fn count_append(&mut self) -> Result<(), BrokenInvariant> {
        if !self.units.count_append() {
            return Err(self.broken(UNIT_IS_OPEN));
        }
        self.marks.accept_append();
        Ok(())
    }

    fn take(&mut self, seq: u64, prev: u64, size: usize) -> Result<Placement, BrokenInvariant> {
        let stored = stored_size(size);
        let Some((open, offset)) = self.units.add_record((seq, prev), stored, size as u32) else {
            return Err(self.broken(UNIT_IS_OPEN));
        };
        self.frontier.records += 1;
        self.marks.accept_record(seq, size as u64);
        let placed = Placement {
            place: Reservation { offset, stored, seq, salt: self.frontier.salt },
            buffer: Arc::clone(&open.buffer),
            unit: open.number,
            position: Position(self.frontier.base + u64::from(offset)),
        };
        self.check_invariants();
        Ok(placed)
    }

    /// Ends the open unit; the next one begins on the next block.
    pub(super) fn seal(&mut self) {
        if let Some((segment, end)) = self.units.seal(self.log, self.marks.last_seq())
            && self.frontier.segment == segment
        {
            self.frontier.offset = end;
        }
    }

    /// Whether another record would be placed whatever its size, or refused for good.
    pub(crate) fn has_room(&mut self) -> bool {
        self.terminal.is_some()
            || (self.check_window().is_ok()
                && self.tail.staged(self.released().position) < self.limits.buffers
                && !self.units.is_full(self.marks.written().unit))
    }
}
