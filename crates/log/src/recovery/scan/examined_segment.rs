//! The examined content of one segment: runs of valid units, and corrupt ranges.

use std::path::PathBuf;
use std::sync::Arc;

use esker_disk::File;

use crate::base::error::{Result, corruption_at};
use crate::format::decode::LocatedRecord;
use crate::format::unit::UnitKind;
use crate::format::{BLOCK_BYTES, DecodeError, IndexEntry, SEGMENT_MAX, Salt, SegmentHeader};
use crate::store::manifest::End;
use crate::store::paths;
use crate::store::segment_reader::SegmentReader;
use crate::store::segment_scan::{TailScan, ValidUnit, valid_unit};
use crate::store::segment_table::State;

pub(crate) struct ExaminedSegment {
    pub(crate) number: u64,
    /// For messages.
    pub(crate) path: PathBuf,
    /// `None` when the file is missing.
    pub(crate) file: Option<Arc<dyn File>>,
    /// `None` when the header is corrupt.
    pub(crate) header: Option<SegmentHeader>,
    /// The fault of the header, or of what it names.
    pub(crate) header_error: Option<String>,
    pub(crate) base: u64,
    /// The number before the first record.
    pub(crate) prev_seq: u64,
    /// The position where it ends at most, by the headers of later segments.
    pub(crate) limit: u64,
    /// The end according to the next segment; `None` for the newest.
    pub(crate) end: Option<u32>,
    /// The chain and the last sequence number at the end, according to the next segment.
    pub(crate) next: Option<(u32, u64)>,
    pub(crate) ranges: Vec<SegmentRange>,
    /// The end of the last block with data after the pieces.
    pub(crate) written_to: u32,
    /// The highest number in a valid header of an invalid unit after the pieces; 0 without one.
    pub(crate) written_seq: u64,
    /// A footer follows the pieces, so no unit does.
    pub(crate) is_complete: bool,
    /// The bytes after the first units.
    pub(crate) after_units: AfterUnits,
    /// The state that an opening keeps of its first units.
    pub(crate) kept: RetainedState,
}

/// The bytes after the first valid units of a segment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AfterUnits {
    pub(crate) tail: TailScan,
    /// The bytes of units that were written in the same session or later.
    pub(crate) units: u64,
    /// Why the first units end.
    pub(crate) decode_error: Option<DecodeError>,
    /// The session of the last of the first units.
    pub(crate) session: u64,
}

/// The state that an opening keeps of a segment.
#[derive(Debug, Default)]
pub(crate) enum RetainedState {
    #[default]
    Nothing,
    /// The units before the first corruption, and entries of a sparse index. `true` if the segment
    /// has its footer.
    Units(Vec<ValidUnit>, Vec<IndexEntry>, bool),
    /// The content according to a footer: nothing else was read.
    Footer(State),
}

/// The content of a log that was read.
pub(super) struct Contents {
    /// The segments, oldest first: by their headers, or else by what fits.
    pub(super) segments: Vec<ExaminedSegment>,
    /// Segments after these of which nothing is valid. They count only if records are missing.
    pub(super) lost: Vec<ExaminedSegment>,
    /// The highest durable lower bound found.
    pub(super) durable_bound: u64,
    /// The log continues after the clean end that the manifest records.
    pub(super) clean_lies: bool,
}

/// The start of a segment that lost its header, as far as the rest of the segment gives it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KnownStart {
    pub(crate) base: Option<u64>,
    /// The number before the first record.
    pub(crate) prev_seq: Option<u64>,
}

/// A part of a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SegmentRange {
    Valid(ValidRun),
    Corrupt { from: u32, to: u32, after: u64, decode_error: DecodeError },
}

/// Valid units, each continuing the one before. A gap is a run of its own.
///
/// Examining a log keeps runs, not units, so its memory grows with the segments and the corrupt
/// ranges, and not with the units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValidRun {
    pub(crate) first: ValidUnit,
    pub(crate) last: ValidUnit,
    pub(crate) units: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl From<ValidUnit> for ValidRun {
    fn from(unit: ValidUnit) -> Self {
        let (records, bytes) = (u64::from(unit.header.records), u64::from(unit.header.span()));
        Self { first: unit, last: unit, units: 1, records, bytes }
    }
}

impl ValidRun {
    fn is_gap(&self) -> bool {
        self.first.header.kind == UnitKind::Gap
    }

    /// Reads the units again.
    pub(crate) fn units(&self, segment: &ExaminedSegment, salt: Salt) -> Result<Vec<ValidUnit>> {
        let Some(file) = segment.file.as_ref().filter(|_| self.units > 1) else {
            return Ok(vec![self.first]);
        };
        let mut image = SegmentReader::new(Arc::clone(file))?;
        let (mut units, mut offset) = (Vec::new(), self.first.offset);
        while offset < self.last.end() {
            let mut payload = 0;
            let count = |record: LocatedRecord<'_>| payload += record.payload.len() as u32;
            let unit = valid_unit(&mut image, salt, offset, count)?;
            let after = units
                .last()
                .map_or(self.first.header.prev_seq, |unit: &ValidUnit| unit.header.last_seq);
            let (header, crc) = unit.map_err(|decode_error| {
                corruption_at(&segment.path, offset.into(), after, decode_error)
            })?;
            let unit = ValidUnit { offset, header, chain: header.next_chain(crc), payload };
            offset = unit.end();
            units.push(unit);
        }
        Ok(units)
    }
}

impl ExaminedSegment {
    /// The name of its file.
    pub(crate) fn name(&self) -> String {
        paths::segment(self.number)
    }

    /// The last sequence number in the segment, or the one before it if it has no valid unit.
    pub(crate) fn last(&self) -> u64 {
        self.ranges
            .iter()
            .rev()
            .find_map(|range| match range {
                SegmentRange::Valid(run) => Some(run.last.header.last_seq),
                SegmentRange::Corrupt { .. } => None,
            })
            .unwrap_or(match &self.kept {
                RetainedState::Footer(state) => state.last_seq,
                _ => self.prev_seq,
            })
    }

    /// The last sequence number before the end of the segment, present or missing.
    pub(crate) fn accounted_to(&self) -> u64 {
        self.next.map_or(self.last(), |(_, last)| last)
    }

    /// The bytes of its file; 0 without one.
    pub(crate) fn file_len(&self) -> Result<u64> {
        Ok(self.file.as_ref().map_or(Ok(0), |file| file.len())?)
    }

    /// A segment that was not read.
    pub(crate) fn new(number: u64, path: PathBuf, file: Option<Arc<dyn File>>) -> Self {
        Self {
            number,
            path,
            file,
            header: None,
            header_error: None,
            base: 0,
            prev_seq: 0,
            limit: u64::MAX,
            end: None,
            next: None,
            ranges: Vec::new(),
            written_to: 0,
            written_seq: 0,
            is_complete: false,
            after_units: AfterUnits::default(),
            kept: RetainedState::default(),
        }
    }

    /// Its header, if nothing is wrong with it or with what it names.
    pub(crate) fn valid_header(&self) -> Option<SegmentHeader> {
        self.header.filter(|_| self.header_error.is_none())
    }

    pub(crate) fn is_corrupt(&self) -> bool {
        let bad = |range: &SegmentRange| matches!(range, SegmentRange::Corrupt { .. });
        self.valid_header().is_none() || self.ranges.iter().any(bad)
    }

    /// The last record before its first corruption; `None` if it has none.
    pub(crate) fn before_corruption(&self) -> Option<u64> {
        if self.valid_header().is_none() {
            return Some(self.prev_seq);
        }
        self.ranges.iter().find_map(|range| match range {
            SegmentRange::Corrupt { after, .. } => Some(*after),
            SegmentRange::Valid(_) => None,
        })
    }

    /// The chain value that the next segment must continue, if this one has no corruption.
    pub(crate) fn chain_after(&self, header: &SegmentHeader) -> u32 {
        match self.ranges.last() {
            Some(SegmentRange::Valid(run)) => run.last.chain,
            _ => match &self.kept {
                RetainedState::Footer(state) => state.chain,
                _ => header.to_block().1,
            },
        }
    }

    /// Whether the log was closed at the end of this segment.
    pub(crate) fn ends_at(&self, end: &End) -> bool {
        let chain = self.valid_header().map(|header| self.chain_after(&header));
        (self.number, self.ranges_end(), self.last(), chain)
            == (end.segment, end.offset, end.seq, Some(end.chain))
    }

    /// The units before the first corruption.
    pub(crate) fn valid_start(&self, salt: Salt) -> Result<Vec<ValidUnit>> {
        let ranges = if self.valid_header().is_some() { &self.ranges[..] } else { &[] };
        let mut units = Vec::new();
        for range in ranges {
            let SegmentRange::Valid(run) = range else { break };
            units.extend(run.units(self, salt)?);
        }
        Ok(units)
    }

    /// Its ranges, with one for each unit. Reads the units again.
    pub(crate) fn ranges_by_unit(&self, salt: Salt) -> Result<Vec<SegmentRange>> {
        let mut ranges = Vec::new();
        for range in &self.ranges {
            match range {
                SegmentRange::Valid(run) => {
                    let units = run.units(self, salt)?;
                    ranges.extend(units.into_iter().map(|unit| SegmentRange::Valid(unit.into())));
                }
                corrupt @ SegmentRange::Corrupt { .. } => ranges.push(*corrupt),
            }
        }
        Ok(ranges)
    }

    /// Joins adjacent valid ranges to runs.
    pub(crate) fn join_runs(&mut self) {
        let mut joined: Vec<SegmentRange> = Vec::new();
        for range in self.ranges.drain(..) {
            match (joined.last_mut(), range) {
                (Some(SegmentRange::Valid(run)), SegmentRange::Valid(next))
                    if !run.is_gap() && !next.is_gap() =>
                {
                    run.last = next.last;
                    run.units += next.units;
                    run.records += next.records;
                    run.bytes += next.bytes;
                }
                (_, range) => joined.push(range),
            }
        }
        self.ranges = joined;
    }

    /// The offset after the units before the first corruption.
    pub(crate) fn valid_end(&self) -> u32 {
        let valid = self.ranges.iter().map_while(|range| match range {
            SegmentRange::Valid(run) => Some(run.last.end()),
            SegmentRange::Corrupt { .. } => None,
        });
        valid.last().unwrap_or(BLOCK_BYTES)
    }

    /// The offset after the last piece.
    pub(crate) fn ranges_end(&self) -> u32 {
        match (self.ranges.last(), &self.kept) {
            (Some(SegmentRange::Valid(run)), _) => run.last.end(),
            (Some(SegmentRange::Corrupt { to, .. }), _) => *to,
            (None, RetainedState::Footer(state)) => state.end,
            (None, _) => BLOCK_BYTES,
        }
    }

    /// The offset where it ends at most.
    pub(crate) fn most(&self) -> u32 {
        self.limit.saturating_sub(self.base).min(u64::from(SEGMENT_MAX)) as u32
    }

    /// Extends this segment to the known start of the next one, which lost its header. The space
    /// between becomes a gap, unless this segment's end is known more precisely. If nothing is
    /// known of the next one, it starts after everything that was written here: records may be
    /// missing in these bytes. It starts at `least` or after, and within the limit: nothing after
    /// that is of this segment. Returns where the two segments meet.
    pub(crate) fn reach(
        &mut self,
        (base, seq): (u64, u64),
        stored: KnownStart,
        least: u64,
    ) -> (u64, u64) {
        let known_base = stored.base.unwrap_or(base).max(base).max(least);
        let (from, most) = (self.ranges_end(), self.most());
        let is_unknown = stored.base.is_none() && stored.prev_seq.is_none();
        let is_longer = is_unknown && from < self.written_to.min(SEGMENT_MAX / 2);
        let written_seq = if is_longer { self.written_seq } else { 0 };
        let known_seq = stored.prev_seq.unwrap_or(seq).max(seq).max(written_seq);
        if (known_base, known_seq) == (base, seq) && !is_longer {
            return (base, seq);
        }
        let wanted = match known_base.checked_sub(self.base) {
            Some(end) if known_base > base => end.min(u64::from(SEGMENT_MAX)) as u32,
            _ => self.written_to.min(SEGMENT_MAX / 2).max(from + BLOCK_BYTES),
        };
        // A segment of which nothing is known gets a block for its own gap, if there is one left.
        let own = if is_unknown && from + BLOCK_BYTES <= most { BLOCK_BYTES } else { 0 };
        let least = least.saturating_sub(self.base).min(most.into()) as u32;
        let to = wanted.min(least.max(most - own));
        if to <= from {
            // The gap is in the next one.
            return (base, seq);
        }
        match self.ranges.last_mut() {
            Some(SegmentRange::Corrupt { to: end, .. }) => *end = to.max(*end),
            _ => self.ranges.push(SegmentRange::Corrupt {
                from,
                to,
                after: seq,
                decode_error: DecodeError::Blank,
            }),
        }
        (self.end, self.next) = (Some(to), Some((0, known_seq)));
        (self.base + u64::from(to), known_seq)
    }
}
