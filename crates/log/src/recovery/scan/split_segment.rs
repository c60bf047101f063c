//! Splits one segment into valid units and corrupt ranges.

use std::sync::Arc;

use esker_disk::File;

use super::examined_segment::{AfterUnits, ExaminedSegment, RetainedState, SegmentRange, ValidRun};
use super::files::ScanMode;
use super::locate::is_footer_at;
use crate::base::error::Result;
use crate::format::decode::LocatedRecord;
use crate::format::{BLOCK_BYTES, DecodeError, Salt, UnitHeader, is_zero};
use crate::store::manifest::{End, Manifest};
use crate::store::segment_reader::SegmentReader;
use crate::store::segment_scan::{
    Density, Expected, SparseIndex, ValidUnit, next_unit, valid_unit,
};

/// The findings that concern more than the segment itself.
#[derive(Default)]
pub(super) struct SplitFindings {
    /// The highest durable lower bound in it.
    pub(super) durable_bound: u64,
    /// It continues after the clean end, in a session that the manifest does not know.
    pub(super) goes_on: bool,
}

/// Whether a unit header after the end of a session's units is trusted. Units of an older session
/// that follow a newer one are dead.
fn is_current_session(orphan: &UnitHeader, session: u64) -> bool {
    orphan.session >= session
}

/// Whether a unit of a session unknown to the manifest follows the clean end. Then the manifest is
/// an outdated one.
pub(super) fn goes_on(
    file: &Arc<dyn File>,
    salt: Salt,
    manifest: &Manifest,
    end: End,
    how: &ScanMode<'_>,
) -> Result<bool> {
    if !end.offset.is_multiple_of(BLOCK_BYTES) {
        return Ok(false);
    }
    let mut image = SegmentReader::watched(Arc::clone(file), Some(how.read_errors))?;
    let unit = valid_unit(&mut image, salt, end.offset, |_| {})?;
    Ok(unit.is_ok_and(|(header, _)| header.chain == end.chain && header.session > manifest.session))
}

/// Splits a segment into pieces. `clean` is the clean end of the log, if it is in this segment.
/// `has_footer`: the segment has the footer that the next header wants. Calls `read` with the
/// offset of what was read, often.
pub(super) fn split_segment(
    segment: &mut ExaminedSegment,
    manifest: &Manifest,
    clean: Option<End>,
    has_footer: bool,
    how: &ScanMode<'_>,
    read: &mut dyn FnMut(u64),
) -> Result<SplitFindings> {
    let salt = Salt::new(manifest.log, segment.number);
    let Some(file) = segment.file.clone() else {
        push_missing(segment);
        return Ok(SplitFindings::default());
    };
    let file = &file;
    let goes_on = match clean {
        Some(end) => goes_on(file, salt, manifest, end, how)?,
        None => false,
    };
    let mut image = SegmentReader::watched(Arc::clone(file), Some(how.read_errors))?;
    let clean = clean.filter(|_| !goes_on).map(|end| end.offset);
    let until = segment.end.or(clean);
    let end = until.map_or(image.len().min(segment.most().into()), u64::from);
    // What follows is not even read.
    image.end_at(end);
    let until = until.or((segment.limit < u64::MAX).then_some(segment.most()));
    let (first_units, durable_bound) =
        split_units(segment, &mut image, (salt, end, until), how, read)?;
    (segment.kept, segment.after_units) = first_units.finish(has_footer);
    drop_what_does_not_lead_on(segment);
    let after = segment.ranges_end();
    segment.is_complete = segment.written_to > after && is_footer_at(file, salt, after)?;
    segment.join_runs();
    Ok(SplitFindings { durable_bound, goes_on })
}

/// Reads the units up to `end`. Returns the first of them, and the highest durable lower bound.
fn split_units(
    segment: &mut ExaminedSegment,
    image: &mut SegmentReader<'_>,
    (salt, end, until): (Salt, u64, Option<u32>),
    how: &ScanMode<'_>,
    read: &mut dyn FnMut(u64),
) -> Result<(FirstUnits, u64)> {
    let mut first_units = FirstUnits::new(segment, how);
    let mut expected = Expected {
        chain: segment.header.map(|header| header.to_block().1),
        seq: segment.prev_seq,
        session: segment.header.map_or(0, |header| header.session),
    };
    let mut bad: Option<(u32, DecodeError)> = None;
    let mut durable_bound = 0;
    let mut at = u64::from(BLOCK_BYTES);
    while at < end {
        read(at);
        let offset = at as u32;
        let mut each = |record: LocatedRecord<'_>| first_units.record(offset, &record);
        let decode_error = match next_unit(image, salt, offset, expected, until, &mut each)? {
            Ok(unit) => {
                first_units.valid(&unit);
                if let Some((from, decode_error)) = bad.take() {
                    let (to, after) = (offset, expected.seq);
                    segment.ranges.push(SegmentRange::Corrupt { from, to, after, decode_error });
                }
                let ValidUnit { header, chain, .. } = unit;
                durable_bound = durable_bound.max(header.durable_bound);
                segment.ranges.push(SegmentRange::Valid(unit.into()));
                segment.written_seq = 0;
                expected =
                    Expected { chain: Some(chain), seq: header.last_seq, session: header.session };
                at += u64::from(header.span());
                continue;
            }
            Err(decode_error) => decode_error,
        };
        expected.chain = None;
        bad.get_or_insert((offset, decode_error));
        let block = image.at(at, BLOCK_BYTES as usize)?;
        let parsed = UnitHeader::parse(block, salt, offset).map(|(header, _)| header);
        // A header may be valid although its records are not. Then its durable lower bound still
        // holds.
        if let Ok(header) = &parsed
            && is_current_session(header, expected.session)
        {
            durable_bound = durable_bound.max(header.durable_bound);
            segment.written_seq = segment.written_seq.max(header.last_seq);
        }
        at += u64::from(BLOCK_BYTES);
        let has_data = !is_zero(block);
        if has_data {
            segment.written_to = at as u32;
        }
        first_units.invalid(offset, decode_error, parsed, has_data);
    }
    // After the last unit of the newest segment, only a durable lower bound makes bytes corruption.
    if let (Some((from, decode_error)), Some(to)) = (bad, segment.end) {
        segment.ranges.push(SegmentRange::Corrupt { from, to, after: expected.seq, decode_error });
    }
    Ok((first_units, durable_bound))
}

/// The whole segment is corrupt if its file is missing.
fn push_missing(segment: &mut ExaminedSegment) {
    if let Some(to) = segment.end.filter(|end| *end > BLOCK_BYTES) {
        let (after, decode_error) = (segment.prev_seq, DecodeError::Blank);
        segment.ranges.push(SegmentRange::Corrupt { from: BLOCK_BYTES, to, after, decode_error });
    }
}

/// The units before the first one that is not valid, and what follows them.
struct FirstUnits {
    index: SparseIndex,
    /// `None` if they are not kept.
    units: Option<Vec<ValidUnit>>,
    after: AfterUnits,
}

impl FirstUnits {
    fn new(segment: &ExaminedSegment, how: &ScanMode<'_>) -> Self {
        let density = how.opening.map(Density::from_options);
        Self {
            index: SparseIndex::new(density.unwrap_or(Density { bytes: u32::MAX, records: 0 })),
            units: density.map(|_| Vec::new()),
            after: AfterUnits {
                session: segment.header.map_or(0, |header| header.session),
                ..AfterUnits::default()
            },
        }
    }

    fn record(&mut self, unit: u32, record: &LocatedRecord<'_>) {
        if self.units.is_some() && self.after.decode_error.is_none() {
            self.index.push(unit, record);
        }
    }

    fn valid(&mut self, unit: &ValidUnit) {
        if self.after.decode_error.is_none() {
            self.after.session = unit.header.session;
            if let Some(units) = &mut self.units {
                units.push(*unit);
            }
        } else {
            self.follows(unit.offset, unit.end(), Some(&unit.header));
        }
    }

    fn invalid(
        &mut self,
        offset: u32,
        decode_error: DecodeError,
        parsed: std::result::Result<UnitHeader, DecodeError>,
        has_data: bool,
    ) {
        if self.after.decode_error.is_none() {
            self.after.decode_error = Some(decode_error);
            self.index.drop_from(offset);
        }
        self.after.tail.earlier_life |= parsed == Err(DecodeError::Checksum);
        if has_data {
            self.follows(offset, offset + BLOCK_BYTES, parsed.ok().as_ref());
        }
    }

    /// Something is written after the first units.
    fn follows(&mut self, from: u32, to: u32, unit: Option<&UnitHeader>) {
        self.after.tail.first.get_or_insert(from);
        self.after.tail.end = to;
        let unit = unit.filter(|unit| is_current_session(unit, self.after.session));
        self.after.units += unit.map_or(0, |unit| u64::from(unit.span()));
    }

    fn finish(self, has_footer: bool) -> (RetainedState, AfterUnits) {
        let index = self.index.finish();
        (
            self.units.map_or(RetainedState::Nothing, |units| {
                RetainedState::Units(units, index, has_footer)
            }),
            self.after,
        )
    }
}

/// Marks valid units at the end of a segment as bad if the next segment does not continue them:
/// they belong to another history. If a crash left them, they are what follows the first units.
fn drop_what_does_not_lead_on(segment: &mut ExaminedSegment) {
    let (Some((chain, seq)), Some(to)) = (segment.next, segment.end) else {
        return;
    };
    let leads = |unit: &ValidUnit| unit.chain == chain && unit.header.last_seq == seq;
    let mut from = to;
    while let Some(SegmentRange::Valid(ValidRun { last: unit, .. })) = segment.ranges.last() {
        let over = unit.header.last_seq > seq;
        if (from == to && leads(unit)) || (from < to && !over) {
            break;
        }
        from = unit.offset;
        segment.after_units.units += u64::from(unit.header.span());
        segment.ranges.pop();
    }
    if from < to {
        let (after, decode_error) = (segment.last(), DecodeError::Chain);
        segment.ranges.push(SegmentRange::Corrupt { from, to, after, decode_error });
        let AfterUnits { tail, decode_error: error, .. } = &mut segment.after_units;
        (tail.first, tail.end) = (Some(from), tail.end.max(to));
        *error = Some(decode_error);
    }
}
