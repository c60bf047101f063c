//! Records returned to a reader, without copying.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker_disk::AlignedBuf;

use crate::base::position::{Position, Seq};
use crate::format::decode::{FoundRecord, Records, last_of_units};
use crate::format::record::RECORD_HEADER;
use crate::staging::buffer::StagingBuffer;
use crate::staging::staged::StagedUnit;

/// Reference-counted memory that holds checked bytes of a segment.
#[derive(Clone)]
pub(crate) enum Memory {
    StagingBuffer(Arc<StagingBuffer>),
    /// Bytes read from the file, and the segment offset of the first byte.
    Read(Arc<AlignedBuf>, u32),
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    pub(crate) fn bytes(&self, offsets: Range<u32>) -> &[u8] {
        match self {
            Memory::StagingBuffer(buffer) => buffer.bytes(offsets),
            Memory::Read(buffer, start) => {
                &buffer[(offsets.start - start) as usize..(offsets.end - start) as usize]
            }
        }
    }
}

/// One record, in place. It borrows from its [`Batch`] or [`View`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The record's number.
    pub seq: Seq,
    /// The number of the record before it.
    pub prev: Seq,
    /// The record's position in the log.
    pub position: Position,
    /// The payload that was appended.
    pub payload: &'a [u8],
    /// 0 where it is not known.
    pub(crate) time_ms: u64,
}

impl Record<'_> {
    /// Returns the time of the record's commit unit, in whole milliseconds: the wall clock when the
    /// unit was submitted, or the time of the unit before it, if that is later and not all records
    /// before were dropped. So times never decrease along the log. After a clock that was ahead
    /// they stay what they were until it has caught up, or until everything is truncated. Recovery
    /// and repair keep them.
    ///
    /// `None` for a record that is not durable yet, and for one that was read by its number or its
    /// place instead of by a stream.
    pub fn time(&self) -> Option<SystemTime> {
        (self.time_ms > 0).then(|| UNIX_EPOCH + Duration::from_millis(self.time_ms))
    }
}

/// Consecutive records without gaps, as many as were available. Cheap to clone; may be iterated any
/// number of times. It keeps the memory of its records, about a megabyte, until it is dropped.
#[derive(Debug, Clone)]
pub struct Batch {
    memory: Memory,
    base: u64,
    offsets: Range<u32>,
    skipped: SkippedRecords,
    /// The number before the first record, if the bytes do not begin with a unit header.
    prev_seq: u64,
}

/// The records of a batch that were not requested.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SkippedRecords {
    /// Records up to this number.
    pub(crate) after: u64,
    /// Records of units before this time.
    pub(crate) before_ms: u64,
}

impl Batch {
    /// A batch of whole units that were checked.
    pub(crate) fn new(
        memory: Memory,
        base: u64,
        offsets: Range<u32>,
        skipped: SkippedRecords,
    ) -> Self {
        Self { memory, base, offsets, skipped, prev_seq: 0 }
    }

    /// A batch of records that are accepted but not durable.
    pub(crate) fn of_staged(staged: StagedUnit) -> Self {
        let StagedUnit { buffer, records, prev_seq, .. } = staged;
        let base = buffer.base;
        let (memory, skipped) = (Memory::StagingBuffer(buffer), SkippedRecords::default());
        Self { memory, base, offsets: records, skipped, prev_seq }
    }

    /// Iterates over the records.
    pub fn iter(&self) -> BatchIter<'_> {
        let bytes = self.memory.bytes(self.offsets.clone());
        let records = Records::new(bytes, self.offsets.start, self.prev_seq);
        BatchIter { records, base: self.base, skipped: self.skipped }
    }

    /// Returns whether the batch has no records. Readers never get such a batch.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns how many records there are. Iterates over all of them.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns the number of the first record; `None` for an empty batch, which readers never get.
    pub fn first(&self) -> Option<Seq> {
        self.iter().next().map(|record| record.seq)
    }

    /// Returns the number of the last record; `None` for an empty batch, which readers never get.
    pub fn last(&self) -> Option<Seq> {
        match last_of_units(self.memory.bytes(self.offsets.clone())) {
            Some(last) => (last > self.skipped.after).then_some(Seq(last)),
            // Records that are not durable yet have no headers of units.
            None => self.iter().last().map(|record| record.seq),
        }
    }

    /// Returns a view of the record with this number.
    pub(crate) fn view_of(&self, seq: Seq) -> Option<View> {
        self.view_where(|record| record.seq == seq)
    }

    /// Returns a view of the record at this position.
    pub(crate) fn view_at(&self, position: Position) -> Option<View> {
        self.view_where(|record| record.position == position)
    }

    fn view_where(&self, wanted: impl FnMut(&Record<'_>) -> bool) -> Option<View> {
        let record = self.iter().find(wanted)?;
        let found = FoundRecord {
            seq: record.seq.0,
            prev_seq: record.prev.0,
            offset: (record.position.0 - self.base) as u32,
            len: record.payload.len() as u32,
        };
        Some(View::new(self.memory.clone(), self.base, found))
    }

    /// Returns the bytes of the log that the batch covers, including headers and padding.
    pub fn stored_bytes(&self) -> u64 {
        u64::from(self.offsets.end - self.offsets.start)
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = Record<'a>;
    type IntoIter = BatchIter<'a>;

    fn into_iter(self) -> BatchIter<'a> {
        self.iter()
    }
}

/// Iterator over the records of a [`Batch`].
#[derive(Debug, Clone)]
pub struct BatchIter<'a> {
    records: Records<'a>,
    base: u64,
    skipped: SkippedRecords,
}

impl<'a> Iterator for BatchIter<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        loop {
            let record = self.records.next()?;
            if record.seq > self.skipped.after && record.time_ms >= self.skipped.before_ms {
                return Some(Record {
                    seq: Seq(record.seq),
                    prev: Seq(record.prev_seq),
                    position: Position(self.base + u64::from(record.offset)),
                    payload: record.payload,
                    time_ms: record.time_ms,
                });
            }
        }
    }
}

/// A single record, with the memory that holds it.
#[derive(Debug, Clone)]
pub struct View {
    memory: Memory,
    seq: Seq,
    prev: Seq,
    position: Position,
    /// The payload's offsets in the segment.
    offsets: Range<u32>,
}

impl View {
    pub(crate) fn new(memory: Memory, base: u64, found: FoundRecord) -> Self {
        let FoundRecord { seq, prev_seq, offset, len } = found;
        let start = offset + RECORD_HEADER;
        Self {
            memory,
            seq: Seq(seq),
            prev: Seq(prev_seq),
            position: Position(base + u64::from(offset)),
            offsets: start..start + len,
        }
    }

    /// Returns the record.
    pub fn record(&self) -> Record<'_> {
        Record {
            seq: self.seq,
            prev: self.prev,
            position: self.position,
            time_ms: 0,
            payload: self.memory.bytes(self.offsets.clone()),
        }
    }

    /// The payload with its memory.
    pub(crate) fn into_payload(self) -> Payload {
        Payload::new(self.memory, self.offsets)
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        self.record().payload
    }
}

/// A view owns its memory and can be sent to other threads, so it can become a `bytes::Bytes`
/// without a copy: `Bytes::from_owner(view)`.
impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        self.payload()
    }
}

impl std::ops::Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.payload()
    }
}

/// The payload of a record, with the memory that holds it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Payload {
    memory: Memory,
    /// The payload's offsets in the segment.
    offsets: Range<u32>,
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.memory.bytes(self.offsets.clone())
    }
}

impl std::ops::Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl Payload {
    pub(crate) fn new(memory: Memory, offsets: Range<u32>) -> Self {
        Self { memory, offsets }
    }
}
