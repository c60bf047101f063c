//! Splits one segment into valid units and corrupt ranges.

use std::ops::Range;
use std::sync::Arc;

use esker_disk::File;

use super::examined::{Examined, SegmentRange, ValidRun};
use crate::base::error::Result;
use crate::format::{BLOCK, DecodeError, Salt, UnitHeader};
use crate::recovery::is_current_session;
use crate::store::manifest::{End, Manifest};
use crate::store::segment_reader::SegmentReader;
use crate::store::segment_scan::{Expected, ValidUnit, next_unit, valid_unit};

/// The findings that concern more than the segment itself.
#[derive(Default)]
pub(crate) struct SplitFindings {
    /// The highest durable lower bound in it.
    pub(crate) durable_bound: u64,
    /// It continues after the clean end, in a session that the manifest does not know.
    pub(crate) goes_on: bool,
}

/// Splits a segment into pieces. `clean` is the clean end of the log, if it is in this segment.
/// Calls `read` with the offset of what was read, often.
pub(crate) fn split_segment(
    segment: &mut Examined,
    manifest: &Manifest,
    clean: Option<End>,
    read: &mut dyn FnMut(u64),
) -> Result<SplitFindings> {
    let salt = Salt::new(manifest.log, segment.number);
    let Some(file) = &segment.file else {
        if let Some(end) = segment.end.filter(|end| *end > BLOCK) {
            let (after, decode_error) = (segment.prev_seq, DecodeError::Blank);
            segment.ranges.push(SegmentRange::Corrupt {
                from: BLOCK,
                to: end,
                after,
                decode_error,
            });
        }
        return Ok(SplitFindings::default());
    };
    let mut image = SegmentReader::new(Arc::clone(file))?;
    let continues_after = |end: End, image: &mut SegmentReader<'_>| -> Result<bool> {
        let unit = valid_unit(image, salt, end.offset, |_| {})?;
        Ok(unit.is_ok_and(|(header, _)| {
            header.chain == end.chain && header.session > manifest.session
        }))
    };
    let goes_on = match clean {
        Some(end) => continues_after(end, &mut image)?,
        None => false,
    };
    let clean = clean.filter(|_| !goes_on).map(|end| end.offset);
    let until = segment.end.or(clean);
    let end = until.map_or(image.len(), u64::from);
    let mut expected = Expected {
        chain: segment.header.map(|header| header.to_block().1),
        seq: segment.prev_seq,
        session: segment.header.map_or(0, |header| header.session),
    };
    let mut bad: Option<(u32, DecodeError)> = None;
    let mut durable_bound = 0;
    let mut at = u64::from(BLOCK);
    while at < end {
        read(at);
        let offset = at as u32;
        let decode_error = match next_unit(&mut image, salt, offset, expected, until, |_| {})? {
            Ok(unit) => {
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
        // A header may be valid although its records are not. Then its durable lower bound still
        // holds.
        let block = image.at(at, BLOCK as usize)?;
        if let Ok((header, _)) = UnitHeader::parse(block, salt, offset)
            && is_current_session(&header, expected.session)
        {
            durable_bound = durable_bound.max(header.durable_bound);
            segment.written_seq = segment.written_seq.max(header.last_seq);
        }
        at += u64::from(BLOCK);
        if image.at(at - u64::from(BLOCK), BLOCK as usize)?.iter().any(|&byte| byte != 0) {
            segment.written_to = at as u32;
        }
    }
    // After the last unit of the newest segment, only a durable lower bound makes bytes corruption.
    if let (Some((from, decode_error)), Some(to)) = (bad, segment.end) {
        segment.ranges.push(SegmentRange::Corrupt { from, to, after: expected.seq, decode_error });
    }
    drop_what_does_not_lead_on(segment);
    segment.join_runs();
    Ok(SplitFindings { durable_bound, goes_on })
}

/// Marks valid units at the end of a segment as bad if the next segment does not continue them:
/// they belong to another history.
fn drop_what_does_not_lead_on(segment: &mut Examined) {
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
        segment.ranges.pop();
    }
    if from < to {
        let (after, decode_error) = (segment.last(), DecodeError::Chain);
        segment.ranges.push(SegmentRange::Corrupt { from, to, after, decode_error });
    }
}

/// The end of the last block of a file that is not all zeros.
pub(crate) fn written_to(file: &Arc<dyn File>) -> Result<u32> {
    Ok(written_after(file, 0)?.map_or(0, |written| written.end))
}

/// From the first block at or after an offset that is not all zeros to the end of the last one.
pub(crate) fn written_after(file: &Arc<dyn File>, offset: u32) -> Result<Option<Range<u32>>> {
    let mut image = SegmentReader::new(Arc::clone(file))?;
    let (mut at, mut written) = (offset, None);
    while u64::from(at) < image.len() {
        let block = image.at(u64::from(at), BLOCK as usize)?;
        let end = at + BLOCK;
        if block.iter().any(|&byte| byte != 0) {
            written = Some(written.map_or(at, |written: Range<u32>| written.start)..end);
        }
        at = end;
    }
    Ok(written)
}
