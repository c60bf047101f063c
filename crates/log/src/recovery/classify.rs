//! Classifies the places where valid units stop: a torn tail, or corruption.
//!
//! Opening classifies the first such place, [`verify`](crate::verify) and
//! [`repair`](crate::recovery::repair) each of them, with the same criteria.

use std::sync::Arc;

use esker_disk::planted::{Bug, is_planted};

use super::findings::{DirScan, DirScanner, Live, ParsedHeader};
use super::outcome::TruncatedTail;
use crate::base::error::corruption_of;
use crate::base::error::{Corruption, Result};
use crate::format::segment::HeaderError;
use crate::format::{BLOCK, DecodeError, Salt, SegmentHeader, UnitHeader};
use crate::store::manifest::Manifest;
use crate::store::segment_reader::SegmentReader;
use crate::store::segment_scan::{TailScan, orphan_units, valid_unit};
use crate::store::segment_table::Segment;

/// After the end of small commits, at least this many bytes of a reused file are prewritten with
/// zeros.
const AHEAD: u32 = 256 << 10;

pub(crate) const MISSING: &str = "the segment is missing";

/// Whether it is corruption that the valid units stop after this record. If no durable lower bound
/// is higher, a crash may have left any subset of the later units: they are a torn tail.
pub(crate) fn is_corruption(durable_bound: u64, after: u64) -> bool {
    durable_bound > after && !is_planted(Bug::HoleTakenForEnd)
}

/// Whether a log without a segment never had a durable one.
pub(crate) fn never_began(manifest: &Manifest, durable_bound: u64) -> bool {
    manifest.trim_segment == 0 && !is_corruption(durable_bound, manifest.trim_seq)
}

/// Whether records are missing before the oldest segment found. The manifest names the first
/// segment of the log and the last record before it. Recovery may have replaced that segment by
/// one with a higher number, which then follows the same record.
pub(crate) fn is_front_missing(manifest: &Manifest, oldest: u64, prev_seq: u64) -> bool {
    manifest.trim_segment > 0 && oldest > manifest.trim_segment && prev_seq > manifest.trim_seq
}

/// Whether the log begins with the segment of this header. The manifest may be older than the
/// removal of the preceding segments. A segment whose records were all dropped is not missing when
/// its file is gone or holds no segment. `is_valid`: whether a segment has a valid header.
pub(crate) fn begins_with(
    manifest: &Manifest,
    header: &SegmentHeader,
    is_valid: impl Fn(u64) -> bool,
) -> bool {
    let before = header.prev_segment;
    let is_dropped = manifest.trim_seq > 0 && header.prev_seq <= manifest.trim_seq;
    before < manifest.trim_segment.max(1) || is_dropped && !is_valid(before)
}

/// Whether a unit header after the end of a session's units is trusted. Units of an older session
/// that follow a newer one are dead.
pub(crate) fn is_current_session(orphan: &UnitHeader, session: u64) -> bool {
    orphan.session >= session
}

/// The place where the valid units stop.
pub(super) struct Break {
    /// Index in the chain of live segments.
    pub(super) at: usize,
    pub(super) decode_error: DecodeError,
}

/// Whether a header is present but not valid.
fn is_lost(parsed: &ParsedHeader) -> bool {
    matches!(parsed, Err(HeaderError::Invalid(decode_error)) if *decode_error != DecodeError::Blank)
}

/// Whether a commit was torn after the end. Its first block may be missing. In a reused file,
/// blocks beyond the prewritten range belong to the file's earlier life.
fn is_torn(tail: TailScan, end: u32) -> bool {
    tail.first.is_some_and(|first| !tail.earlier_life || first - end < AHEAD)
}

impl DirScanner<'_> {
    /// Decides whether the units that stop here are a torn tail or corruption.
    pub(super) fn classify_break(&self, scan: &mut DirScan, stop: &Break) -> Result<()> {
        let Live { segment: broken, units, .. } = &scan.live[stop.at];
        let newest = units.iter().flatten().next_back().map(|unit| unit.header.session);
        let session = newest.unwrap_or(broken.header.session);
        let (end, last) = {
            let state = broken.state.read();
            (state.end, state.last_seq)
        };
        let mut durable_bound = scan.durable_bound;
        // The bytes of units after the break that are discarded.
        let mut lost = 0u64;
        // The first later segment that has units but no header.
        let mut missing_header = None;
        let mut scan_from = |number: u64, salt: Salt, from: u32| -> Result<TailScan> {
            let Some((file, _)) = self.headers.get(&number) else {
                return Ok(TailScan::default());
            };
            orphan_units(file, salt, from, None, &self.read_errors, |orphan, _| {
                if !is_current_session(&orphan.header, session) {
                    return;
                }
                durable_bound = durable_bound.max(orphan.header.durable_bound);
                lost += u64::from(orphan.header.span());
                if number != broken.number()
                    && self.headers.get(&number).is_some_and(|(_, parsed)| parsed.is_err())
                {
                    missing_header.get_or_insert(number);
                }
            })
        };
        let tail = scan_from(broken.number(), broken.salt, end)?;
        for (&number, (_, parsed)) in self.headers.range(broken.number() + 1..) {
            if let Ok((header, _)) = parsed {
                scan.durable_bound = scan.durable_bound.max(header.durable_bound);
            }
            scan_from(number, Salt::new(self.manifest.log, number), BLOCK)?;
        }
        scan.durable_bound = durable_bound.max(scan.durable_bound);
        if is_corruption(scan.durable_bound, last) {
            // A durable lower bound above the newest valid segment may mean that its successor lost
            // its header.
            let later = |number: &u64| *number > broken.number();
            let is_newest =
                !self.headers.iter().any(|(number, (_, parsed))| later(number) && parsed.is_ok());
            let lost =
                self.headers.iter().find(|(number, (_, parsed))| later(number) && is_lost(parsed));
            let missing_header = missing_header
                .or(self.manifest.clean.map(|clean| clean.segment))
                .or(lost.map(|(number, _)| *number))
                .or(self.stored);
            let (path, offset) = match missing_header.filter(later).filter(|_| is_newest) {
                Some(number) => (self.path(number), 0),
                None => (broken.path.clone(), end),
            };
            let is_missing =
                offset == 0 && missing_header.is_some_and(|n| !self.headers.contains_key(&n));
            let what = if is_missing { MISSING.into() } else { stop.decode_error.to_string() };
            scan.corruption = Some(corruption_of(&path, offset.into(), last, what));
        } else if lost > 0 || stop.decode_error == DecodeError::Unreadable || is_torn(tail, end) {
            let bytes_after = u64::from(tail.end.saturating_sub(end));
            let bytes = if tail.earlier_life { lost } else { lost.max(bytes_after) };
            scan.cut = Some(TruncatedTail {
                file: broken.path.clone(),
                offset: u64::from(end),
                bytes: bytes.max(u64::from(BLOCK)),
                what: stop.decode_error.to_string(),
            });
        }
        Ok(())
    }

    /// Classifies a log in which no segment has a valid header: just created, or everything lost.
    pub(super) fn classify_empty(&self, scan: &mut DirScan) {
        if never_began(&self.manifest, scan.durable_bound) {
            return;
        }
        let number = self.headers.keys().next().copied().unwrap_or(self.manifest.trim_segment);
        let what = match self.headers.get(&number) {
            Some((_, Err(HeaderError::Invalid(decode_error)))) => decode_error.to_string(),
            _ => MISSING.into(),
        };
        scan.corruption = Some(corruption_of(&self.path(number), 0, 0, what));
    }

    /// Whether a unit of a session unknown to the manifest follows the clean end. Then the manifest
    /// is an outdated one.
    fn goes_on(&self, segment: &Segment, end: u32, chain: u32) -> bool {
        let unit = SegmentReader::watched(Arc::clone(&segment.reader), Some(&self.read_errors))
            .and_then(|mut image| valid_unit(&mut image, segment.salt, end, |_| {}));
        unit.is_ok_and(|unit| {
            unit.is_ok_and(|(header, _)| {
                header.chain == chain && header.session > self.manifest.session
            })
        })
    }

    /// After a clean close, a log that does not end where the manifest says is corrupt.
    pub(super) fn check_clean_end(&self, scan: &DirScan) -> Option<Corruption> {
        let (Some(clean), Some(live)) = (&self.manifest.clean, scan.live.last()) else {
            return None;
        };
        let state = live.segment.state.read();
        let number = live.segment.number();
        if (number, state.end, state.last_seq, state.chain)
            == (clean.segment, clean.offset, clean.seq, clean.chain)
            && scan.durable_bound <= state.last_seq
            && !self.goes_on(&live.segment, state.end, state.chain)
        {
            return None;
        }
        let path = self.path(clean.segment);
        let offset = if number == clean.segment { state.end } else { 0 };
        let what = format!("the log was closed at byte {}, which is not its end", clean.offset);
        Some(corruption_of(&path, offset.into(), state.last_seq, what))
    }
}
