//! Where the records of a time begin.
//!
//! The times of units that hold a record that was not dropped never decrease, and the header of a
//! segment has a time between those of the units before it and its own. Dropped units may have
//! later times: the clock was ahead, everything was dropped, and it was set right. A reader in
//! another process may not know yet that they were dropped. It may then begin with one of them, and
//! so too early, never too late: what is found always follows a unit that is earlier.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::base::error::Result;
use crate::format::{BLOCK_BYTES, UnitHeader};
use crate::store::segment_reader::SegmentReader;
use crate::store::segment_table::{Segment, SegmentTable};

/// Milliseconds since 1970, rounded up to the time that a unit at or after it can have.
pub(crate) fn ms_of(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The offset at which the units of a time begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// The position of the first unit of that time or later.
    pub(crate) position: u64,
    /// The last record before it.
    pub(crate) after: u64,
}

/// Finds the first unit of this time or later with a record above `dropped`, below the position
/// `limit`. Where a unit before it cannot be read, that one: the reader reports it. The end if all
/// units are earlier. `None` if there is no segment.
pub(crate) fn first_unit_at(
    table: &SegmentTable,
    dropped: u64,
    limit: u64,
    time_ms: u64,
) -> Result<Option<Boundary>> {
    let segments = table.all();
    // A segment that `repair` had to invent has no time.
    let later = segments.iter().position(|segment| {
        segment.header.time_ms >= time_ms && segment.header.prev_seq >= dropped
    });
    let later = later.unwrap_or(segments.len());
    let Some(segment) = segments.get(later.saturating_sub(1)) else { return Ok(None) };
    let end = table.readable(segment, limit);
    let is_before = |unit: &UnitHeader| unit.last_seq <= dropped || unit.time_ms < time_ms;
    let (unit, after) = first_unit_of(segment, end, is_before)?;
    Ok(Some(Boundary { position: segment.header.base + u64::from(unit), after }))
}

/// The offset of the first unit that is not before the wanted one, or `end`, and the last record
/// before it.
fn first_unit_of(
    segment: &Arc<Segment>,
    end: u32,
    is_before: impl Fn(&UnitHeader) -> bool,
) -> Result<(u32, u64)> {
    let mut image = SegmentReader::new(Arc::clone(&segment.reader))?;
    image.end_at(u64::from(end));
    let mut is_earlier = |offset: u32, read_ahead: bool| -> Result<Option<UnitHeader>> {
        let bytes = match read_ahead {
            true => image.at(u64::from(offset), BLOCK_BYTES as usize)?,
            false => image.block(u64::from(offset))?,
        };
        let header = UnitHeader::parse(bytes, segment.salt, offset).ok();
        Ok(header.map(|(header, _)| header).filter(&is_before))
    };
    let indexed: Vec<u32> = segment.state.read().index.iter().map(|entry| entry.unit).collect();
    let (mut low, mut high) = (0, indexed.partition_point(|unit| *unit < end));
    while low < high {
        let middle = low.midpoint(high);
        match is_earlier(indexed[middle], false)? {
            Some(_) => low = middle + 1,
            None => high = middle,
        }
    }
    let mut at = low.checked_sub(1).map_or(BLOCK_BYTES, |before| indexed[before]);
    let mut after = segment.header.prev_seq;
    while at < end
        && let Some(header) = is_earlier(at, true)?
    {
        at += header.span();
        after = header.last_seq;
    }
    Ok((at.min(end), after))
}
