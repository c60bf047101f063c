//! The segments of an open log, in order, each with its file and its sparse index in memory.

use std::path::PathBuf;
use std::sync::Arc;

use esker_disk::File;
use parking_lot::RwLock;

use crate::base::error::{Result, corruption_at};
use crate::base::position::{Seq, SeqRange};
use crate::format::decode::LocatedRecord;
use crate::format::unit::{UnitHeader, UnitKind};
use crate::format::{BLOCK_BYTES, IndexEntry, Salt, SegmentHeader};
use crate::store::paths;
use crate::store::segment_reader::SegmentReader;
use crate::store::segment_scan::valid_unit;

/// One segment. Its mutable state has a lock, held only for a lookup or the push of an entry.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) salt: Salt,
    /// Used in messages.
    pub(crate) path: PathBuf,
    /// The file, opened once for reading.
    pub(crate) reader: Arc<dyn File>,
    pub(crate) state: RwLock<State>,
}

/// The state of a segment's units: those that are durable, and those that are being committed.
/// Readers go no further than the durable watermark.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// The offset after the last unit.
    pub(crate) end: u32,
    pub(crate) last_seq: u64,
    pub(crate) chain: u32,
    pub(crate) records: u64,
    /// Bytes of the payloads of these records; `None` where only a footer is known, and that was
    /// written before footers had them.
    pub(crate) payload: Option<u32>,
    /// There may be a gap among the units. Not `false` where there is one.
    pub(crate) has_gap: bool,
    pub(crate) time_ms: u64,
    /// Nothing but the footer will still be written.
    pub(crate) full: bool,
    pub(crate) footed: bool,
    pub(crate) index: Vec<IndexEntry>,
}

impl State {
    /// Counts the payloads of more records.
    pub(crate) fn add_payload(&mut self, bytes: u32) {
        self.payload = self.payload.map(|payload| payload + bytes);
    }
}

impl Segment {
    pub(crate) fn number(&self) -> u64 {
        self.header.segment
    }

    /// The name of its file.
    pub(crate) fn name(&self) -> String {
        paths::segment(self.number())
    }

    /// The position in the log after the last unit.
    pub(crate) fn end_position(&self) -> u64 {
        self.header.base + u64::from(self.state.read().end)
    }

    /// The number of the first record, if there is one: the index begins with it.
    pub(crate) fn first(&self) -> Option<u64> {
        self.state.read().index.first().map(|entry| entry.seq)
    }

    /// The last index entry at or before a sequence number. Of the next entry, if there is one, it
    /// also returns the record's offset and the number before it.
    pub(crate) fn seek(&self, seq: u64) -> Option<(IndexEntry, Option<(u32, u64)>)> {
        let state = self.state.read();
        let after = state.index.partition_point(|entry| entry.seq <= seq);
        let entry = *state.index.get(after.checked_sub(1)?)?;
        Some((entry, state.index.get(after).map(|next| (next.record, next.prev_seq))))
    }

    /// The last index entry at or before an offset.
    pub(crate) fn seek_offset(&self, offset: u32) -> Option<IndexEntry> {
        let state = self.state.read();
        let after = state.index.partition_point(|entry| entry.record <= offset);
        state.index.get(after.checked_sub(1)?).copied()
    }

    /// The end of a run of whole units that starts with the one at `offset`. The run takes at most
    /// `len` bytes, or reaches the next indexed unit if that is farther. It ends at `end` at the
    /// latest, after which nothing may be read. `None` where the index has no unit to end at, and
    /// the rest exceeds `len`.
    pub(crate) fn units_until(&self, offset: u32, len: u32, end: u32) -> Option<u32> {
        let state = self.state.read();
        let following = state.index.partition_point(|entry| entry.unit <= offset);
        let near = state.index.partition_point(|entry| entry.unit <= offset.saturating_add(len));
        let entry = state.index.get(near.saturating_sub(1).max(following));
        let known = entry.map(|entry| entry.unit.min(end));
        known.or_else(|| (end - offset <= len).then_some(end))
    }

    /// The number of records with sequence numbers up to this one in valid units, and the bytes of
    /// their payloads.
    pub(crate) fn records_up_to(&self, seq: u64) -> (u64, u64) {
        let end = self.state.read().end;
        let (mut count, mut at) = ((0, 0), BLOCK_BYTES);
        let Ok(mut image) = SegmentReader::new(Arc::clone(&self.reader)) else { return count };
        while at < end && self.header.prev_seq < seq {
            let each = |record: LocatedRecord<'_>| {
                if record.seq <= seq {
                    count = (count.0 + 1, count.1 + record.payload.len() as u64);
                }
            };
            match valid_unit(&mut image, self.salt, at, each) {
                Ok(Ok((header, _))) if header.last_seq < seq => at += header.span(),
                _ => break,
            }
        }
        count
    }

    /// The ranges of records that `repair` quarantined, in order. Reads the headers of all units if
    /// there may be one.
    pub(crate) fn gaps(&self) -> Result<Vec<SeqRange>> {
        let (end, has_gap) = {
            let state = self.state.read();
            (state.end, state.has_gap)
        };
        let mut gaps = Vec::new();
        if !has_gap {
            return Ok(gaps);
        }
        let mut image = SegmentReader::new(Arc::clone(&self.reader))?;
        let (mut at, mut last) = (BLOCK_BYTES, self.header.prev_seq);
        while at < end {
            let parsed = UnitHeader::parse(image.block(u64::from(at))?, self.salt, at);
            let (header, _) =
                parsed.map_err(|error| corruption_at(&self.path, at.into(), last, error))?;
            let (from, to) = (header.prev_seq, header.last_seq);
            // Where only a header was corrupt, no record is missing.
            if header.kind == UnitKind::Gap && from < to {
                gaps.push(SeqRange { from: Seq(from), to: Seq(to) });
            }
            at += header.span();
            last = to;
        }
        Ok(gaps)
    }

    /// The offset of a unit at or before the record with this number.
    pub(crate) fn unit_before(&self, seq: u64) -> u32 {
        self.seek(seq).map_or(BLOCK_BYTES, |(entry, ..)| entry.unit)
    }
}

/// The table of segments, oldest first. Never empty while a log is open.
#[derive(Debug, Default)]
pub(crate) struct SegmentTable {
    table: RwLock<Vec<Arc<Segment>>>,
}

impl SegmentTable {
    pub(crate) fn new(table: Vec<Arc<Segment>>) -> Self {
        Self { table: RwLock::new(table) }
    }

    pub(crate) fn push(&self, segment: Arc<Segment>) {
        self.table.write().push(segment);
    }

    /// Removes and returns the segments below a number.
    pub(crate) fn drop_below(&self, number: u64) -> Vec<Arc<Segment>> {
        let mut table = self.table.write();
        let keep = table.partition_point(|segment| segment.number() < number);
        table.drain(..keep).collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Segment>> {
        self.table.read().clone()
    }

    pub(crate) fn newest(&self) -> Option<Arc<Segment>> {
        self.table.read().last().cloned()
    }

    pub(crate) fn oldest(&self) -> Option<Arc<Segment>> {
        self.table.read().first().cloned()
    }

    /// The number of the oldest segment. Holds no reference to it, which would keep its space.
    pub(crate) fn oldest_number(&self) -> Option<u64> {
        self.table.read().first().map(|oldest| oldest.number())
    }

    /// The segment that holds, or would hold, the record with this number: the last one whose
    /// records all follow a smaller number.
    pub(crate) fn of_seq(&self, seq: u64) -> Option<Arc<Segment>> {
        let table = self.table.read();
        let after = table.partition_point(|segment| segment.header.prev_seq < seq);
        table.get(after.saturating_sub(1)).cloned()
    }

    /// The segment that holds this position, or the next one where none does.
    pub(crate) fn of_position(&self, position: u64) -> Option<Arc<Segment>> {
        let table = self.table.read();
        let after = table.partition_point(|segment| segment.header.base <= position);
        table.get(after.saturating_sub(1)).cloned()
    }

    /// The end offset of the bytes of a segment that are below a position.
    pub(crate) fn readable(&self, segment: &Segment, position: u64) -> u32 {
        let next = self.after(segment.number()).map_or(u64::MAX, |next| next.header.base);
        next.min(position).saturating_sub(segment.header.base) as u32
    }

    /// The segment after the one with this number.
    pub(crate) fn after(&self, number: u64) -> Option<Arc<Segment>> {
        let table = self.table.read();
        table.get(table.partition_point(|segment| segment.number() <= number)).cloned()
    }
}
