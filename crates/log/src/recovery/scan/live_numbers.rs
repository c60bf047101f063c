//! Finds the live segments of a log, also where the links between them are lost.
//!
//! A valid header names the preceding segment, and says where that ends. A segment that lost its
//! header does not. Then the next lower number precedes it whose content leaves room: the segment
//! must end where the lost one begins, or before.
//!
//! # Where each segment ends at most
//!
//! The valid header above a segment is the cut, however many segments without a header are between
//! them. Each of these takes a block at least, or what its content needs. So each live segment has
//! a limit, and nothing at or after it is of that segment: not bytes that follow its units, and not
//! a gap in place of the records that are missing. A preceding header that begins at or after its
//! limit, or too far before it, is not valid.
//!
//! # Files that may be no segments
//!
//! A file with the name of a segment may hold no valid header, unit or footer. It is a segment of
//! which everything is lost, or it never was one. Nothing in the file decides which, but its
//! neighbours may: a segment takes a block, and its records are missing. So the file counts as a
//! segment only if records are missing there, and only if the nearest valid segment below still
//! has room. Otherwise it would take the place of valid units, and repair may lose none of these.
//!
//! Skipping such a file loses nothing that was valid. If records are missing there, they are
//! reported as a gap after the segment below.
//!
//! # The crash argument
//!
//! This module only reads. Repair rewrites the oldest segment first, so a crash leaves some
//! rewritten segments with valid headers before those that it did not reach. A rewritten segment
//! ends where it was found to end. So it leaves the same room, and the next repair finds the same
//! numbers.

use std::sync::Arc;

use esker_disk::File;

use super::classify::begins_with;
use super::files::Headers;
use super::locate::{Units, content, has_own_units};
use crate::base::error::Result;
use crate::format::segment::HeaderError;
use crate::format::{BLOCK_BYTES, DecodeError, SEGMENT_MAX, Salt, SegmentHeader};
use crate::store::manifest::Manifest;
use crate::store::segment_reader::ReadErrors;

/// A live segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveNumber {
    pub(super) number: u64,
    /// The position where it ends at most. The next valid header has it, if it is of the next
    /// segment. `u64::MAX` for the newest segment.
    pub(super) limit: u64,
}

/// The live segments, in order. If a link is corrupt or missing, the next lower number that fits is
/// used. A header that the next one contradicts becomes invalid.
pub(super) fn live_numbers(
    headers: &mut Headers,
    manifest: &Manifest,
    read_errors: &ReadErrors,
) -> Result<Vec<LiveNumber>> {
    // The newest may have lost its header. Then it has units, or the clean end names it.
    let mut newest = None;
    for (&number, (file, parsed)) in headers.iter().rev() {
        if parsed.is_ok()
            || manifest.clean.is_some_and(|end| end.segment == number)
            || has_own_units(file, Salt::new(manifest.log, number), read_errors)?
        {
            newest = Some(LiveNumber { number, limit: u64::MAX });
            break;
        }
    }
    let mut numbers: Vec<LiveNumber> = newest.into_iter().collect();
    let mut limit = Limit { position: u64::MAX, seq: u64::MAX, has_room: false };
    while let Some(&LiveNumber { number, .. }) = numbers.last() {
        let valid =
            |number: u64| headers.get(&number).and_then(|(_, parsed)| parsed.ok()).map(|of| of.0);
        let before = match valid(number) {
            Some(header) if begins_with(manifest, &header, |n| valid(n).is_some()) => None,
            Some(header) => {
                limit = Limit { position: header.base, seq: header.prev_seq, has_room: false };
                let before = header.prev_segment;
                if valid(before).is_some_and(|before| length_before(&before, &header).is_none())
                    && let Some((_, parsed)) = headers.get_mut(&before)
                {
                    *parsed = Err(HeaderError::Invalid(DecodeError::Nonsense));
                }
                Some(before)
            }
            None => {
                let file = headers.get(&number).map(|(file, _)| file);
                limit = limit.before_lost(file, Salt::new(manifest.log, number))?;
                before_lost_header(headers, manifest, number, limit)?
            }
        };
        match before {
            Some(number) if number >= manifest.trim_segment.max(1) => {
                numbers.push(LiveNumber { number, limit: limit.position });
            }
            _ => break,
        }
    }
    numbers.reverse();
    Ok(numbers)
}

/// The length of a segment that the next one follows, if their headers agree about it.
pub(super) fn length_before(header: &SegmentHeader, next: &SegmentHeader) -> Option<u32> {
    let length = next.base.checked_sub(header.base)?;
    let fits = (u64::from(BLOCK_BYTES)..=u64::from(SEGMENT_MAX)).contains(&length);
    (fits && header.prev_seq <= next.prev_seq).then_some(length as u32)
}

/// The numbers that the segment before another may hold.
#[derive(Debug, Clone, Copy)]
struct Limit {
    /// It must end at this position, or before.
    position: u64,
    /// Its last record has this number, or a lower one. Then the records between are missing.
    seq: u64,
    /// Missing records may have been after `position`. Otherwise they take a block before it.
    has_room: bool,
}

impl Limit {
    /// The limit below a segment that lost its header. This limit is the one of that segment.
    fn before_lost(self, file: Option<&Arc<dyn File>>, salt: Salt) -> Result<Self> {
        let units = match file {
            Some(file) => content(file, salt, self.seq)?,
            None => None,
        };
        Ok(match units {
            Some(Units { first: (offset, prev_seq), end, last_seq }) => Self {
                position: self.below(u64::from(end) + self.missing(last_seq)),
                seq: prev_seq,
                has_room: offset > BLOCK_BYTES,
            },
            None => Self { position: self.below(u64::from(BLOCK_BYTES)), ..self },
        })
    }

    /// The position so many bytes below. There is no limit below none.
    fn below(self, bytes: u64) -> u64 {
        if self.position == u64::MAX { u64::MAX } else { self.position.saturating_sub(bytes) }
    }

    /// The least space of the records between this one and the limit.
    fn missing(&self, last: u64) -> u64 {
        if last < self.seq && !self.has_room { u64::from(BLOCK_BYTES) } else { 0 }
    }
}

/// Whether a file without a valid header was a segment with this salt.
fn has_content(file: &Arc<dyn File>, salt: Salt) -> Result<bool> {
    Ok(has_own_units(file, salt, &ReadErrors::default())?
        || content(file, salt, u64::MAX)?.is_some())
}

/// The segment before one that lost its header.
fn before_lost_header(
    headers: &Headers,
    manifest: &Manifest,
    number: u64,
    limit: Limit,
) -> Result<Option<u64>> {
    for (&before, (file, parsed)) in headers.range(..number).rev() {
        let precedes = match parsed {
            Ok((header, _)) => ends_within(file, header, limit)?.is_some(),
            Err(_) => {
                has_content(file, Salt::new(manifest.log, before))?
                    || is_lost_segment(headers, manifest, before, limit)?
            }
        };
        if precedes {
            return Ok(Some(before));
        }
    }
    Ok(None)
}

/// Whether a file without valid content counts as a segment.
fn is_lost_segment(
    headers: &Headers,
    manifest: &Manifest,
    number: u64,
    limit: Limit,
) -> Result<bool> {
    match nearest(headers, manifest, number, limit)? {
        Some(Nearest { is_complete }) => {
            let position = limit.position.saturating_sub(u64::from(BLOCK_BYTES));
            let below = Limit { position, ..limit };
            Ok(!is_complete && nearest(headers, manifest, number, below)?.is_some())
        }
        // The log begins here, after its trim point.
        None => {
            let least = u64::from(BLOCK_BYTES) + limit.missing(manifest.trim_seq);
            Ok(manifest.trim_seq < limit.seq && least <= limit.position)
        }
    }
}

/// The nearest segments below a number that have valid content, and fit.
struct Nearest {
    /// No records are missing after them.
    is_complete: bool,
}

fn nearest(
    headers: &Headers,
    manifest: &Manifest,
    number: u64,
    mut limit: Limit,
) -> Result<Option<Nearest>> {
    let mut found: Option<Nearest> = None;
    let mut is_of_earlier_time = false;
    for (&before, (file, parsed)) in headers.range(..number).rev() {
        let salt = Salt::new(manifest.log, before);
        match parsed {
            Ok((header, _)) => match ends_within(file, header, limit)? {
                Some(last) => {
                    return Ok(Some(found.unwrap_or(Nearest { is_complete: last >= limit.seq })));
                }
                None => is_of_earlier_time = true,
            },
            // A valid segment below this one has to fit, too.
            Err(_) if has_content(file, salt)? => {
                let units = content(file, salt, limit.seq)?;
                let is_complete = units.is_some_and(|units| units.last_seq >= limit.seq);
                found.get_or_insert(Nearest { is_complete });
                limit = limit.before_lost(Some(file), salt)?;
            }
            Err(_) => {}
        }
    }
    Ok(found.filter(|_| !is_of_earlier_time))
}

/// The last record of a segment, if it ends within the limit. One that leaves no room for the
/// missing records is of an earlier time.
fn ends_within(file: &Arc<dyn File>, header: &SegmentHeader, limit: Limit) -> Result<Option<u64>> {
    let units = content(file, header.salt(), limit.seq)?;
    let (end, last) =
        units.map_or((BLOCK_BYTES, header.prev_seq), |units| (units.end, units.last_seq));
    let position = header.base.saturating_add(u64::from(end) + limit.missing(last));
    Ok((position <= limit.position && last <= limit.seq).then_some(last))
}
