//! Classifies what was read of a log: valid, a torn tail, or corruption. This is a pure function of
//! what was read.
//!
//! Opening, [`verify`](crate::verify) and [`repair`](crate::recovery::repair) read a log by the
//! same scan and decide by this classification alone. So a log in which `verify` finds nothing
//! opens, and a repair ends when there is nothing left to find.

use std::path::Path;

use esker_disk::planted::{Bug, is_planted};

use super::examined_segment::{AfterUnits, Contents, ExaminedSegment, SegmentRange};
use crate::base::error::{Corruption, corruption_of};
use crate::format::{BLOCK_BYTES, DecodeError, SegmentHeader};
use crate::recovery::outcome::TruncatedTail;
use crate::store::manifest::{End, Manifest};
use crate::store::paths;

/// After the end of small commits, at least this many bytes of a reused file are prewritten with
/// zeros.
const PREWRITTEN_BYTES_MIN: u32 = 256 << 10;

pub(super) const MISSING: &str = "the segment is missing";
const FRONT_MISSING: &str = "the segment before it is missing";

/// A log that was read and classified.
pub(crate) struct ClassifiedLog {
    /// The manifest, with the trim point that the watermark page has.
    pub(crate) manifest: Manifest,
    /// The live segments, oldest first.
    pub(crate) segments: Vec<ExaminedSegment>,
    /// Segments after a torn tail, which do not count.
    pub(crate) dead: Vec<ExaminedSegment>,
    /// The highest durable lower bound found.
    pub(crate) durable_bound: u64,
    /// The last sequence number before the end of the newest segment, present or known to be
    /// missing.
    pub(crate) last: u64,
    /// The log continues after the clean end that the manifest records.
    pub(crate) clean_lies: bool,
    /// The first of the segments is a gap in the place of those before the oldest one found.
    pub(crate) is_front_missing: bool,
}

/// Whether it is corruption that the valid units stop after this record. If no durable lower bound
/// is higher, a crash may have left any subset of the later units: they are a torn tail.
fn is_corruption(durable_bound: u64, after: u64) -> bool {
    durable_bound > after && !is_planted(Bug::HoleTakenForEnd)
}

/// Whether a log without a segment never had a durable one.
fn never_began(manifest: &Manifest, durable_bound: u64) -> bool {
    manifest.trim_segment == 0 && !is_corruption(durable_bound, manifest.trim_seq)
}

/// Whether records are missing before the oldest segment found. The manifest names the first
/// segment of the log and the last record before it. Recovery may have replaced that segment by
/// one with a higher number, which then follows the same record.
pub(super) fn is_front_missing(manifest: &Manifest, oldest: u64, prev_seq: u64) -> bool {
    manifest.trim_segment > 0 && oldest > manifest.trim_segment && prev_seq > manifest.trim_seq
}

/// Whether the log begins with the segment of this header. The manifest may be older than the
/// removal of the preceding segments. A segment whose records were all dropped is not missing when
/// its file is gone or holds no segment. `is_valid`: whether a segment has a valid header.
pub(super) fn begins_with(
    manifest: &Manifest,
    header: &SegmentHeader,
    is_valid: impl Fn(u64) -> bool,
) -> bool {
    let before = header.prev_segment;
    let is_dropped = manifest.trim_seq > 0 && header.prev_seq <= manifest.trim_seq;
    before < manifest.trim_segment.max(1) || is_dropped && !is_valid(before)
}

/// Classifies what was read.
pub(super) fn classify(manifest: Manifest, contents: Contents) -> ClassifiedLog {
    let Contents { mut segments, lost, durable_bound, clean_lies } = contents;
    let dead = cut_torn_tail(&mut segments, &manifest, durable_bound);
    let is_front_missing = add_lost_front(&mut segments, &manifest);
    let mut last = segments.last().map_or(manifest.trim_seq, ExaminedSegment::accounted_to);
    // Durable records are missing after the last segment. They were in segments that lost their
    // header and all units, or that are gone.
    let nothing_left = segments.is_empty() && !never_began(&manifest, durable_bound);
    if nothing_left || is_corruption(durable_bound, last) {
        let mut reached = 0;
        if let (Some(newest), false) = (segments.last_mut(), lost.is_empty()) {
            close_newest(newest, last);
            reached = newest.base.saturating_add(newest.ranges_end().into());
            last = newest.accounted_to();
        }
        for segment in lost {
            segments.push(ExaminedSegment { base: reached, prev_seq: last, ..segment });
            reached += u64::from(BLOCK_BYTES);
        }
    }
    ClassifiedLog { manifest, segments, dead, durable_bound, last, clean_lies, is_front_missing }
}

/// Inserts a gap if records are missing before the oldest segment. The manifest names the record
/// and the segment that the log begins with. The gap takes the place of that segment.
fn add_lost_front(segments: &mut Vec<ExaminedSegment>, manifest: &Manifest) -> bool {
    let Some(first) = segments.first_mut() else { return false };
    if !is_front_missing(manifest, first.number, first.prev_seq) {
        return false;
    }
    if first.header.is_some() {
        // It names no preceding segment.
        first.header_error = Some(FRONT_MISSING.into());
    }
    let (from, to) = (BLOCK_BYTES, 2 * BLOCK_BYTES);
    let after = manifest.trim_seq;
    let path = first.path.with_file_name(paths::segment(manifest.trim_segment));
    let gap = ExaminedSegment {
        header_error: Some(MISSING.into()),
        base: first.base.saturating_sub(to.into()),
        prev_seq: after,
        end: Some(to),
        next: Some((0, first.prev_seq)),
        ranges: vec![SegmentRange::Corrupt { from, to, after, decode_error: DecodeError::Blank }],
        ..ExaminedSegment::new(manifest.trim_segment, path, None)
    };
    segments.insert(0, gap);
    true
}

/// Removes everything after the first hole that no durable lower bound makes corruption. Returns
/// the segments that are therefore dead.
fn cut_torn_tail(
    segments: &mut Vec<ExaminedSegment>,
    manifest: &Manifest,
    durable_bound: u64,
) -> Vec<ExaminedSegment> {
    let is_torn = |after| !is_corruption(durable_bound, after);
    for (n, segment) in segments.iter_mut().enumerate() {
        // The oldest was durable before the manifest named it.
        let named = n == 0 && manifest.trim_segment > 0;
        if segment.header.is_none() && !named && is_torn(segment.prev_seq) {
            return segments.split_off(n);
        }
        let torn = |range: &SegmentRange| matches!(range, SegmentRange::Corrupt { after, .. } if is_torn(*after));
        if let Some(at) = segment.ranges.iter().position(torn) {
            segment.ranges.truncate(at);
            (segment.end, segment.next) = (None, None);
            return segments.split_off(n + 1);
        }
    }
    Vec::new()
}

/// Closes the newest segment before lost ones. A lost one may be a file that never was a segment.
/// Then the missing records are here, so bytes after the last unit are kept as a gap.
fn close_newest(newest: &mut ExaminedSegment, last: u64) {
    let from = newest.ranges_end();
    if !newest.is_complete && newest.written_to > from {
        let (to, decode_error) = (newest.written_to, DecodeError::Blank);
        newest.ranges.push(SegmentRange::Corrupt { from, to, after: last, decode_error });
        (newest.end, newest.next) = (Some(to), Some((0, last.max(newest.written_seq))));
    }
}

impl ClassifiedLog {
    /// All corruption, in order. Only what is still in the log counts, by a manifest that was read
    /// `now`. `manifest_path` is for messages.
    pub(crate) fn corruption(&self, now: &Manifest, manifest_path: &Path) -> Vec<Corruption> {
        let mut found = Vec::new();
        let segments = || self.segments.iter().filter(|of| of.number >= now.trim_segment);
        for segment in segments() {
            found.extend(in_segment(segment));
        }
        if self.clean_lies {
            let closed_at = self.manifest.clean.map_or(0, |end| end.seq);
            let what = format!("{}: it continues there", self.not_its_end());
            found.push(corruption_of(manifest_path, 0, closed_at, what));
        }
        // Records dropped meanwhile are not missing. A log that ends below its trim point is
        // corrupt.
        let trim = now.trim_seq;
        let missing = if trim == self.manifest.trim_seq { 0 } else { trim };
        let newest = segments().next_back();
        if is_corruption(self.durable_bound, self.last.max(missing))
            && let Some(newest) = newest.filter(|newest| newest.file.is_some())
        {
            let what = format!("records up to {} were durable and are missing", self.durable_bound);
            let at = u64::from(newest.ranges_end());
            found.push(corruption_of(&newest.path, at, self.last, what));
        }
        let ends = |end: &End| newest.is_some_and(|newest| newest.ends_at(end));
        if found.is_empty() && !self.manifest.clean.as_ref().is_none_or(ends) {
            let last = newest.map_or(self.last, ExaminedSegment::last);
            found.push(corruption_of(manifest_path, 0, last, self.not_its_end()));
        }
        found
    }

    fn not_its_end(&self) -> String {
        let offset = self.manifest.clean.map_or(0, |end| end.offset);
        format!("the log was closed at byte {offset}, which is not its end")
    }

    /// The torn tail that is cut off, if there is one: after the newest segment nothing counts.
    pub(crate) fn cut(&self) -> Option<TruncatedTail> {
        let newest = self.segments.last()?;
        let (end, after) = (newest.ranges_end(), &newest.after_units);
        let dead: u64 = self.dead.iter().map(|segment| unit_bytes(segment, after.session)).sum();
        let AfterUnits { tail, units, .. } = *after;
        let units = units + dead;
        let decode_error = after.decode_error.unwrap_or(DecodeError::Blank);
        // A commit was torn after the end. Its first block may be missing. In a reused file, blocks
        // beyond the prewritten range belong to the file's earlier life.
        let is_near =
            |first: u32| !tail.earlier_life || first.saturating_sub(end) < PREWRITTEN_BYTES_MIN;
        let is_torn = tail.first.is_some_and(is_near);
        if units == 0 && decode_error != DecodeError::Unreadable && !is_torn {
            return None;
        }
        let bytes_after = u64::from(tail.end.saturating_sub(end));
        let bytes = if tail.earlier_life { units } else { units.max(bytes_after) };
        Some(TruncatedTail {
            file: newest.path.clone(),
            offset: u64::from(end),
            bytes: bytes.max(u64::from(BLOCK_BYTES)),
            what: decode_error.to_string(),
        })
    }
}

/// The bytes of the units of a dead segment, of this session or later ones.
fn unit_bytes(segment: &ExaminedSegment, session: u64) -> u64 {
    let first = segment.ranges.iter().map_while(|range| match range {
        SegmentRange::Valid(run) if run.last.header.session >= session => Some(run.bytes),
        _ => None,
    });
    first.sum::<u64>() + segment.after_units.units
}

/// The corruption of one segment.
fn in_segment(segment: &ExaminedSegment) -> Vec<Corruption> {
    let corruption = |offset, after, what| corruption_of(&segment.path, offset, after, what);
    let header_error = segment.header_error.iter();
    let header = header_error.map(|what| corruption(0, segment.prev_seq, what.clone()));
    // A missing file is one place.
    let ranges = segment.ranges.iter().filter(|_| segment.file.is_some());
    let ranges = ranges.filter_map(|range| match range {
        SegmentRange::Valid(_) => None,
        SegmentRange::Corrupt { from, after, decode_error, .. } => {
            Some(corruption(u64::from(*from), *after, decode_error.to_string()))
        }
    });
    header.chain(ranges).collect()
}
