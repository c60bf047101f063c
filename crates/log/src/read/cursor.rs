//! Reading a log in order: from memory where possible, else from the files.

use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::time::SystemTime;

use esker_disk::{AlignedBuf, read_full_at};

use crate::base::error::corruption_at;
use crate::base::error::{Error, Result, Trimmed};
use crate::base::position::{Position, Seq, SeqRange};
use crate::format::decode::{SearchResult, check_unit, find};
use crate::format::unit::UnitKind;
use crate::format::{BLOCK_BYTES, DecodeError, UnitHeader};
use crate::read::batch::{Batch, Memory, SkippedRecords, View};
use crate::read::source::{Source, Wait, Want};
use crate::store::segment_reader::SegmentReader;
use crate::store::segment_scan::valid_unit;
use crate::store::segment_table::Segment;
use crate::store::unit_times::{first_unit_at, ms_of};

/// Bytes read at once from a file, unless a unit is larger.
const READ_BYTES: u32 = 256 << 10;

/// The most bytes that a lookup reads at once. More between two entries of the index is a large
/// record, or a gap that `repair` left, which may be a whole segment: it is read by units.
const LOOKUP_MAX: u32 = 4 << 20;

/// The start of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the oldest stored record. A gap that a repair left right before it is reported first.
    Oldest,
    /// With the first record that becomes durable after the call.
    Tip,
    /// With the first record after this number.
    After(Seq),
    /// With the first record at or above this number. Unlike `from` of
    /// [`Error::Quarantined`], this number is included.
    From(Seq),
    /// With the record at this position, from a [`Ticket`](crate::Ticket) or a
    /// [`Record`](crate::Record). A crash may move the last records of a log to other positions;
    /// numbers stay.
    Position(Position),
    /// With the first record whose [time](crate::Record::time) is this or later, of those that are
    /// stored or will be. Times never decrease, so all records after it follow; where the clock was
    /// ahead, also some that were committed before this time. Reads some blocks to find it: the
    /// headers of units, in a binary search over the sparse index where the segment has one.
    At(SystemTime),
}

/// A position in a log, always at the start of a unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor {
    position: u64,
    skipped: SkippedRecords,
    /// Whether the next batch may begin with skipped records.
    skipping: bool,
}

impl Cursor {
    pub(crate) fn new(source: &dyn Source, start: Start) -> Result<Self> {
        let low = source.low();
        let (limit, last) = source.limit();
        let after = match start {
            Start::Tip => return Ok(Self::skipping(limit, last)),
            Start::Oldest => low.seq,
            Start::After(seq) => seq.0,
            Start::From(seq) => seq.0.saturating_sub(1),
            Start::Position(position) => read_at(source, position)?.record().prev.0,
            Start::At(time) => return Self::at(source, ms_of(time)),
        };
        if after >= last {
            return Ok(Self::skipping(limit, after));
        }
        if after < low.seq {
            return Err(trimmed(source));
        }
        let Some(segment) = source.segments().of_seq(after.saturating_add(1)) else {
            return Err(trimmed(source));
        };
        if segment.header.prev_seq > after {
            return Err(trimmed(source));
        }
        let position =
            segment.header.base + u64::from(segment.unit_before(after.saturating_add(1)));
        Ok(Self::skipping(position, after))
    }

    /// At a unit; records up to a number are skipped.
    fn skipping(position: u64, after: u64) -> Self {
        Self { position, skipped: SkippedRecords { after, before_ms: 0 }, skipping: true }
    }

    /// Before the first record of this time or later.
    fn at(source: &dyn Source, time_ms: u64) -> Result<Self> {
        // The limit first: where a unit before it is earlier than dropped ones, the trim point
        // shows that these were dropped.
        let limit = source.limit().0;
        let low = source.low();
        let start = low.position / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES);
        let first = first_unit_at(source.segments(), low.seq, limit, time_ms)?;
        let position = first.map_or(limit, |first| first.position).max(start);
        // Where records are dropped meanwhile, the next step says so.
        let skipped = SkippedRecords { after: low.seq, before_ms: time_ms };
        Ok(Self { position, skipped, skipping: true })
    }

    /// The number before the first wanted record, and the position, before the first batch.
    pub(crate) fn start(&self) -> (u64, u64) {
        (self.skipped.after, self.position)
    }

    /// The position after the last batch.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next records, or `None` at the limit. Blocks for the disk.
    pub(crate) fn next(&mut self, source: &dyn Source) -> Result<Option<Batch>> {
        match self.step(source, Wait::Block)? {
            Poll::Ready(batch) => Ok(batch),
            // Unreachable for a blocking caller.
            Poll::Pending => Ok(None),
        }
    }

    /// The next records, or `None` at the limit. May return `Pending` with [`Wait::Wake`].
    pub(crate) fn step(
        &mut self,
        source: &dyn Source,
        wait: Wait<'_>,
    ) -> Result<Poll<Option<Batch>>> {
        loop {
            let (limit, _) = source.limit();
            if self.position >= limit {
                return Ok(Poll::Ready(None));
            }
            let low = source.low();
            if self.position < low.position && self.skipped.after < low.seq {
                return Err(trimmed(source));
            }
            let segments = source.segments();
            let Some(segment) = segments.of_position(self.position) else {
                return Err(trimmed(source));
            };
            if self.position < segment.header.base {
                return Err(trimmed(source));
            }
            let offset = ((self.position - segment.header.base) as u32).max(BLOCK_BYTES);
            let end = segments.readable(&segment, limit);
            if offset >= end {
                // No more units here; the next segment begins where this one ends.
                self.position = segment.header.base + u64::from(end);
                if self.position >= limit || segments.after(segment.number()).is_none() {
                    return Ok(Poll::Ready(None));
                }
                continue;
            }
            // A reader that already got a batch is reading sequentially.
            let want = Want { segment: &segment, offset, end, ahead: !self.skipping };
            let read = match source.buffer(segment.number(), offset) {
                Some((buffer, stop)) => Ok((Memory::StagingBuffer(buffer), offset..stop.min(end))),
                None => match source.units(&want, wait) {
                    Poll::Ready(read) => read,
                    Poll::Pending => return Ok(Poll::Pending),
                },
            };
            let (memory, offsets) = match read {
                Ok(read) => read,
                Err(Error::Quarantined(SeqRange { from, to })) => {
                    self.pass_gap(&segment, offset)?;
                    // Only a header was corrupt, or the caller skips these records.
                    if from == to || (self.skipping && to.0 <= self.skipped.after) {
                        continue;
                    }
                    return Err(Error::Quarantined(SeqRange { from, to }));
                }
                Err(Error::Corrupted(corruption)) => {
                    if self.skipping && self.skip_corruption(&segment, offset, end)? {
                        continue;
                    }
                    return Err(self.explain(source, Error::Corrupted(corruption)));
                }
                Err(error) => return Err(error),
            };
            self.position = segment.header.base + u64::from(offsets.end);
            let batch = Batch::new(memory, segment.header.base, offsets, self.skipped);
            if self.skipping && batch.is_empty() {
                continue;
            }
            // From here on every record is wanted.
            (self.skipping, self.skipped) = (false, SkippedRecords::default());
            return Ok(Poll::Ready(Some(batch)));
        }
    }

    /// On a bad unit, checks the trim point first: the bytes may have left the log.
    fn explain(&self, source: &dyn Source, error: Error) -> Error {
        let low = source.low();
        // Plus one, because the trim point may be inside the bad unit itself.
        if self.position + 1 < low.position {
            return Error::Trimmed(Trimmed { oldest: Seq(low.seq).next() });
        }
        error
    }

    /// Skips corruption that affects no wanted record. It continues at a valid unit whose
    /// `prev_seq` is at or below the last skipped number and whose last record is above it. Returns
    /// `false` if there is none.
    fn skip_corruption(&mut self, segment: &Segment, offset: u32, end: u32) -> Result<bool> {
        let mut image = SegmentReader::new(Arc::clone(&segment.reader))?;
        let mut at = offset + BLOCK_BYTES;
        while at < end {
            if let Ok((header, _)) = valid_unit(&mut image, segment.salt, at, |_| {})? {
                if header.prev_seq > self.skipped.after {
                    return Ok(false);
                }
                if header.last_seq > self.skipped.after {
                    self.position = segment.header.base + u64::from(at);
                    return Ok(true);
                }
            }
            at += BLOCK_BYTES;
        }
        Ok(false)
    }

    fn pass_gap(&mut self, segment: &Segment, offset: u32) -> Result<()> {
        let mut block = AlignedBuf::new(BLOCK_BYTES as usize);
        read_full_at(&*segment.reader, &mut block, u64::from(offset))?;
        if let Ok((header, _)) = UnitHeader::parse(&block, segment.salt, offset) {
            self.position = segment.header.base + u64::from(offset + header.span());
        }
        Ok(())
    }
}

/// The error for a position that was dropped. The number is a lower bound; see [`exactly`].
pub(crate) fn trimmed(source: &dyn Source) -> Error {
    Error::Trimmed(Trimmed { oldest: Seq(source.low().seq.saturating_add(1)) })
}

/// The same error with the exact number of the oldest record.
pub(crate) fn exactly(source: &dyn Source, error: Error) -> Error {
    match error {
        Error::Trimmed(_) => Error::Trimmed(Trimmed { oldest: oldest(source) }),
        error => error,
    }
}

/// The number of the oldest record, or of the next one in an empty log.
pub(crate) fn oldest(source: &dyn Source) -> Seq {
    let low = source.low();
    let first = source.segments().oldest().and_then(|oldest| oldest.first());
    if let Some(seq) = first.filter(|seq| low.seq < *seq && *seq <= source.limit().1) {
        return Seq(seq);
    }
    let start = low.position / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES);
    let mut cursor = Cursor::skipping(start, low.seq);
    // Where the oldest records were corrupt, the gaps that `repair` left come first. Each is
    // returned once.
    loop {
        match cursor.next(source) {
            Ok(Some(batch)) => {
                if let Some(record) = batch.iter().next() {
                    return record.seq;
                }
            }
            Err(Error::Quarantined(_)) => {}
            Ok(None) => return Seq(low.seq.max(source.limit().1).saturating_add(1)),
            Err(_) => return Seq(low.seq.saturating_add(1)),
        }
    }
}

/// Reads and checks whole units from a file: at least one, and as many as one read holds.
pub(crate) fn read_units(segment: &Segment, offset: u32, end: u32) -> Result<(Memory, Range<u32>)> {
    let left = end - offset;
    // The unreadable bytes may come after this unit.
    let (mut buffer, mut got) = load(segment, offset, READ_BYTES.min(left))
        .or_else(|_| load(segment, offset, BLOCK_BYTES))?;
    if let Ok((header, _)) = UnitHeader::parse(&buffer[..got], segment.salt, offset) {
        if header.kind == UnitKind::Gap {
            let (from, to) = (Seq(header.prev_seq), Seq(header.last_seq));
            return Err(Error::Quarantined(SeqRange { from, to }));
        }
        if header.span() as usize > got && header.span() <= left {
            (buffer, got) = load(segment, offset, header.span())?;
        }
    }
    let mut at = 0;
    while offset + at < end {
        match check_unit(&buffer[at as usize..got], segment.salt, offset + at, |_| {}) {
            Ok((header, _)) if header.kind == UnitKind::Data => at += header.span(),
            Err(decode_error) if at == 0 => {
                return Err(corruption(segment, offset, decode_error));
            }
            // A gap, the end of the bytes read, or corruption: the next read distinguishes them.
            _ => break,
        }
    }
    Ok((Memory::Read(Arc::new(buffer), offset), offset..offset + at))
}

/// The error for invalid bytes at an offset. It names the unit and the last valid record before it.
fn corruption(segment: &Segment, offset: u32, decode_error: DecodeError) -> Error {
    let mut unit = segment.seek_offset(offset).map_or(BLOCK_BYTES, |entry| entry.unit);
    let before = segment.seek_offset(unit.saturating_sub(1));
    let mut after = segment.header.prev_seq;
    if let Some(entry) = before {
        unit = entry.unit;
        after = entry.prev_seq;
    }
    if let Ok(mut image) = SegmentReader::new(Arc::clone(&segment.reader)) {
        while let Ok(Ok((header, _))) = valid_unit(&mut image, segment.salt, unit, |_| {}) {
            if unit + header.span() > offset {
                break;
            }
            after = header.last_seq;
            unit += header.span();
        }
    }
    corruption_at(&segment.path, unit.min(offset).into(), after, decode_error)
}

/// Reads from a segment's file. Returns fewer bytes at the end of the file.
pub(crate) fn load(segment: &Segment, offset: u32, len: u32) -> Result<(AlignedBuf, usize)> {
    let mut buffer = AlignedBuf::new(len as usize);
    let got = read_full_at(&*segment.reader, &mut buffer, u64::from(offset))?;
    Ok((buffer, got))
}

/// Returns one record.
pub(crate) fn read(source: &dyn Source, seq: Seq) -> Result<View> {
    let (limit, last) = source.limit();
    let not_found = Error::NotFound { seq };
    if seq.0 > last || seq.0 == 0 {
        return Err(not_found);
    }
    if seq.0 <= source.low().seq {
        return Err(trimmed(source));
    }
    let Some(segment) = source.segments().of_seq(seq.0) else {
        return Err(not_found);
    };
    let Some((entry, next)) = segment.seek(seq.0) else {
        return scan_for(source, seq);
    };
    let (next, before_next) = match (next, source.segments().after(segment.number())) {
        (Some((next, before_next)), _) => (u64::from(next), before_next),
        (None, Some(next_segment)) => {
            (next_segment.header.base - segment.header.base, next_segment.header.prev_seq)
        }
        (None, None) => (u64::MAX, last),
    };
    let end = limit.saturating_sub(segment.header.base).min(next) as u32;
    let span = (entry.prev_seq, before_next.min(last));
    if let Some((buffer, stop)) = source.buffer(segment.number(), entry.record) {
        let offsets = entry.record..end.min(stop);
        let found = find(buffer.bytes(offsets), entry.record, segment.salt, span, seq.0);
        if let SearchResult::Record(record) = found {
            return Ok(View::new(Memory::StagingBuffer(buffer), segment.header.base, record));
        }
    }
    let start = entry.record / BLOCK_BYTES * BLOCK_BYTES;
    if end <= entry.record {
        return Err(corruption(&segment, entry.record, DecodeError::Nonsense));
    }
    if end - start > LOOKUP_MAX {
        return scan_for(source, seq);
    }
    let Ok((buffer, got)) = load(&segment, start, end - start) else {
        // The unreadable bytes may be those of another record.
        return scan_for(source, seq);
    };
    let bytes = &buffer[..got.min((end - start) as usize)];
    let bytes = bytes.get((entry.record - start) as usize..).unwrap_or(&[]);
    match find(bytes, entry.record, segment.salt, span, seq.0) {
        SearchResult::Record(record) => {
            Ok(View::new(Memory::Read(Arc::new(buffer), start), segment.header.base, record))
        }
        SearchResult::Passed => Err(not_found),
        SearchResult::Gap { from, to } => {
            Err(Error::Quarantined(SeqRange { from: Seq(from), to: Seq(to) }))
        }
        SearchResult::Invalid { offset, decode_error } => {
            if seq.0 <= source.low().seq {
                return Err(trimmed(source));
            }
            // The corruption may be in an earlier record.
            match scan_for(source, seq) {
                Err(Error::Corrupted(_) | Error::NotFound { .. }) => {
                    Err(corruption(&segment, offset, decode_error))
                }
                other => other,
            }
        }
    }
}

/// Scans units in order for a record, if the index does not help.
fn scan_for(source: &dyn Source, seq: Seq) -> Result<View> {
    let mut cursor = Cursor::new(source, Start::From(seq))?;
    match cursor.next(source)? {
        Some(batch) => match batch.view_of(seq) {
            Some(view) => Ok(view),
            None => Err(Error::NotFound { seq }),
        },
        None => Err(Error::NotFound { seq }),
    }
}

/// Returns the record at a position taken from a ticket or a record.
pub(crate) fn read_at(source: &dyn Source, position: Position) -> Result<View> {
    let (limit, _) = source.limit();
    let wrong = Error::InvalidPosition { position };
    if position.0 >= limit {
        return Err(wrong);
    }
    let Some(segment) = source.segments().of_position(position.0) else {
        return Err(trimmed(source));
    };
    if position.0 < segment.header.base {
        return Err(trimmed(source));
    }
    let offset = (position.0 - segment.header.base) as u32;
    let unit = segment.seek_offset(offset).map_or(BLOCK_BYTES, |entry| entry.unit);
    let mut cursor = Cursor::skipping(segment.header.base + u64::from(unit), source.low().seq);
    while cursor.position <= position.0 {
        cursor = Cursor::skipping(cursor.position, source.low().seq);
        match cursor.next(source) {
            Ok(Some(batch)) => {
                if let Some(view) = batch.view_at(position) {
                    return Ok(view);
                }
            }
            Ok(None) => break,
            // The gap concerns other records.
            Err(Error::Quarantined(_)) if cursor.position <= position.0 => {}
            Err(error) => return Err(error),
        }
    }
    Err(wrong)
}
