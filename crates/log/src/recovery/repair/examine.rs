//! Reads every byte of a log and continues past all corruption.

use std::sync::Arc;

use esker_disk::{Dir, Open};

use super::examined::{Examined, SegmentRange};
use super::live_numbers::{Headers, ParsedHeader, live_numbers};
use super::locate::{find_footer, first_position, known_start};
use super::report::ReadProgress;
use super::split_segment::{split_segment, written_to};
use crate::base::error::{Error, Result};
use crate::format::segment::HeaderError;
use crate::format::{BLOCK, DecodeError, SEGMENT_MAX};
use crate::recovery::reach;
use crate::recovery::{MISSING, is_corruption, is_front_missing, never_began, read_segment_header};
use crate::store::manifest::Manifest;
use crate::store::paths::{self, Name};
use crate::store::watermark_page::{StoredWatermark, refuse_foreign_page};

/// The result of examining a log.
pub(crate) struct Examination {
    /// The live segments, oldest first.
    pub(crate) segments: Vec<Examined>,
    /// Segments after a torn tail, which do not count.
    pub(crate) dead: Vec<Examined>,
    /// The highest durable lower bound found.
    pub(crate) durable_bound: u64,
    /// The last sequence number before the end of the newest segment, present or known to be
    /// missing.
    pub(crate) last: u64,
    /// The log continues after the clean end that the manifest records.
    pub(crate) clean_lies: bool,
}

/// Examines a log with this manifest. `page` is the content of the watermark page in its directory.
pub(crate) fn examine(
    dir: &dyn Dir,
    manifest: &Manifest,
    page: Option<StoredWatermark>,
    progress: &mut dyn FnMut(ReadProgress),
) -> Result<Examination> {
    let mut headers = Headers::new();
    for name in dir.list()? {
        let Name::Segment(number) = paths::classify(&name) else { continue };
        let is_dead = number < manifest.trim_segment;
        let file = match dir.open(&name, Open::read()) {
            // It left the log after it was listed.
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => continue,
            Err(_) if is_dead => continue,
            other => other?,
        };
        let parsed = read_segment_header(&*file, manifest, number)
            .unwrap_or(Err(HeaderError::Invalid(DecodeError::NotAUnit)));
        match parsed {
            // Opening removes a dead segment of this log, and refuses one of another log.
            _ if is_dead && !matches!(parsed, Err(HeaderError::Foreign(_))) => continue,
            Err(HeaderError::Version(version)) => {
                return Err(Error::UnsupportedVersion { file: dir.path_of(&name), version });
            }
            Err(HeaderError::Foreign(_)) => {
                return Err(Error::ForeignFile { file: dir.path_of(&name) });
            }
            _ => {}
        }
        headers.insert(number, (file, parsed));
    }

    let mut durable_bound = manifest.durable_bound();
    let stored = page.filter(|stored| stored.log == manifest.log);
    if !headers.values().any(|(_, parsed)| parsed.is_ok()) {
        refuse_foreign_page(dir, page, manifest.log)?;
    }
    durable_bound = durable_bound.max(stored.map_or(0, |stored| stored.seq));
    reach::retain(&mut headers, manifest, |(_, parsed)| parsed.is_ok());
    let mut segments = Vec::new();
    for number in live_numbers(&headers, manifest)? {
        let parsed = headers.get(&number);
        segments.push(Examined {
            number,
            path: dir.path_of(&paths::segment(number)),
            file: parsed.map(|(file, _)| Arc::clone(file)),
            header: parsed.and_then(|(_, parsed)| parsed.ok()).map(|(header, _)| header),
            header_error: match parsed {
                None => Some(MISSING.into()),
                Some((_, Err(HeaderError::Invalid(decode_error)))) => {
                    Some(decode_error.to_string())
                }
                Some(_) => None,
            },
            base: 0,
            prev_seq: 0,
            end: None,
            next: None,
            ranges: Vec::new(),
            written_to: 0,
            written_seq: 0,
        });
    }
    let mut reading = ReadProgress::default();
    for segment in &segments {
        reading.total += segment.file_len()?;
    }
    let front = front_base(&segments, manifest)?;
    let mut reached = (0, manifest.trim_seq);
    let mut clean_lies = manifest.clean.is_some_and(|end| durable_bound > end.seq);
    for n in 0..segments.len() {
        let next = segments.get(n + 1).and_then(|next| next.header);
        let is_last = n + 1 == segments.len();
        let (before, rest) = segments.split_at_mut(n);
        let segment = &mut rest[0];
        let footer = match (segment.header.is_none(), next.is_none() && !is_last) {
            (false, false) => None,
            _ => find_footer(segment, manifest)?,
        };
        (segment.base, segment.prev_seq) = match &segment.header {
            Some(header) => {
                durable_bound = durable_bound.max(header.durable_bound);
                (header.base, header.prev_seq)
            }
            None if n == 0 => {
                let (mut base, mut prev_seq) =
                    first_position(segment, footer.as_ref(), next.as_ref(), manifest)?;
                if next.is_none() {
                    base = front.unwrap_or(base);
                }
                // The first record of a log may follow any number, which the header does not
                // record.
                if segment.number == manifest.trim_segment && manifest.trim_seq == 0 {
                    prev_seq = 0;
                }
                if is_front_missing(manifest, segment.number, prev_seq) {
                    base = base.max(u64::from(2 * BLOCK));
                }
                (base, prev_seq)
            }
            None => {
                let stored = known_start(segment, footer.as_ref(), next.as_ref(), manifest)?;
                before.last_mut().map_or(reached, |before| before.reach(reached, stored))
            }
        };
        if let Some(next) = next {
            let end = next.base.saturating_sub(segment.base);
            segment.end = Some(end.clamp(u64::from(BLOCK), u64::from(SEGMENT_MAX / 2)) as u32);
            segment.next = Some((next.chain, next.prev_seq));
        } else if let Some(footer) = footer.filter(|_| !is_last) {
            segment.end = Some(footer.end);
            segment.next = Some((footer.chain, footer.last_seq));
        }
        let clean =
            manifest.clean.filter(|end| end.segment == segment.number && durable_bound <= end.seq);
        let before = reading.read;
        let part = split_segment(segment, manifest, clean, &mut |at| {
            progress(ReadProgress { read: before + at, ..reading });
        })?;
        reading.read += segment.file_len()?;
        progress(reading);
        clean_lies |= part.goes_on;
        durable_bound = durable_bound.max(part.durable_bound);
        reached =
            (segment.base.saturating_add(u64::from(segment.ranges_end())), segment.accounted_to());
    }
    let dead = cut_torn_tail(&mut segments, manifest, durable_bound);
    add_lost_front(dir, &mut segments, manifest);
    let mut last = segments.last().map_or(manifest.trim_seq, Examined::accounted_to);
    // Durable records are missing after the last segment. They were in segments that lost their
    // header and all units, or that are gone.
    let newest = segments.last().map(|newest: &Examined| newest.number);
    let nothing_left = segments.is_empty() && !never_began(manifest, durable_bound);
    if nothing_left || is_corruption(durable_bound, last) {
        let stored = stored.map(|stored| stored.segment);
        let lost = lost_segments(&headers, manifest, stored, newest);
        if let (Some(newest), false) = (segments.last_mut(), lost.is_empty()) {
            reached.0 = close_newest(newest, manifest, last)?;
            last = newest.accounted_to();
        }
        for number in lost {
            let file = headers.get(&number).map(|(file, _)| Arc::clone(file));
            let written_to = file.as_ref().map_or(Ok(0), written_to)?;
            let decode_error = match headers.get(&number) {
                Some((_, Err(HeaderError::Invalid(decode_error)))) => decode_error.to_string(),
                _ => MISSING.into(),
            };
            segments.push(Examined {
                base: reached.0,
                prev_seq: last,
                written_to,
                ..Examined::missing_header(dir, number, file, decode_error)
            });
            reached.0 += u64::from(BLOCK);
        }
    }
    Ok(Examination { segments, dead, durable_bound, last, clean_lies })
}

/// The base of the oldest segment, if it and later segments lost their headers. The footers give
/// the length of each, and the first valid header its own base.
fn front_base(segments: &[Examined], manifest: &Manifest) -> Result<Option<u64>> {
    let mut before = 0;
    let first = segments.first().map_or(0, |first| first.number);
    for (number, segment) in (first..).zip(segments) {
        // If two numbers are not consecutive, a segment between them may be missing.
        if segment.number != number {
            return Ok(None);
        }
        if let Some(header) = &segment.header {
            return Ok(header.base.checked_sub(before));
        }
        let Some(footer) = find_footer(segment, manifest)? else { return Ok(None) };
        before += u64::from(footer.end);
    }
    Ok(None)
}

/// Inserts a gap if records are missing before the oldest segment. The manifest names the record
/// and the segment that the log begins with. The gap takes the place of that segment.
fn add_lost_front(dir: &dyn Dir, segments: &mut Vec<Examined>, manifest: &Manifest) {
    let Some(first) = segments.first_mut() else { return };
    let (from, to) = (BLOCK, 2 * BLOCK);
    let after = manifest.trim_seq;
    let Some(base) = first.base.checked_sub(u64::from(to)) else { return };
    if !is_front_missing(manifest, first.number, first.prev_seq) {
        return;
    }
    if first.header.take().is_some() {
        // It names no preceding segment.
        first.header_error = Some("the segment before it is missing".into());
    }
    let gap = Examined {
        base,
        prev_seq: after,
        end: Some(to),
        next: Some((0, first.prev_seq)),
        ranges: vec![SegmentRange::Corrupt { from, to, after, decode_error: DecodeError::Blank }],
        ..Examined::missing_header(dir, manifest.trim_segment, None, MISSING.into())
    };
    segments.insert(0, gap);
}

/// Removes everything after the first hole that no durable lower bound makes corruption, as
/// opening does. Returns the segments that are therefore dead.
fn cut_torn_tail(
    segments: &mut Vec<Examined>,
    manifest: &Manifest,
    durable_bound: u64,
) -> Vec<Examined> {
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

/// Closes the newest segment before lost ones, and returns where it ends. A lost one may be a file
/// that never was a segment. Then the missing records are here, so bytes after the last unit are
/// kept as a gap.
fn close_newest(newest: &mut Examined, manifest: &Manifest, last: u64) -> Result<u64> {
    let from = newest.ranges_end();
    // A segment that is complete has a footer there.
    let is_complete = find_footer(newest, manifest)?.is_some_and(|footer| footer.end == from);
    if !is_complete && newest.written_to > from {
        let (to, decode_error) = (newest.written_to, DecodeError::Blank);
        newest.ranges.push(SegmentRange::Corrupt { from, to, after: last, decode_error });
        (newest.end, newest.next) = (Some(to), Some((0, last.max(newest.written_seq))));
    }
    Ok(newest.base.saturating_add(u64::from(newest.ranges_end())))
}

/// The lost segments after the newest one that has valid content.
fn lost_segments(
    headers: &Headers,
    manifest: &Manifest,
    stored: Option<u64>,
    newest: Option<u64>,
) -> Vec<u64> {
    // The page may be of a time when a segment was the newest that left the log meanwhile.
    let least = newest.map_or(manifest.trim_segment.max(1), |newest| newest + 1);
    let is_later = |number: &u64| *number >= least;
    let lost = |parsed: &ParsedHeader| matches!(parsed, Err(HeaderError::Invalid(decode_error)) if *decode_error != DecodeError::Blank);
    let corrupt = headers.iter().filter(|(_, (_, parsed))| lost(parsed)).map(|(number, _)| *number);
    let closed = manifest.clean.map(|clean| clean.segment);
    let mut numbers: Vec<u64> = corrupt.chain(closed).chain(stored).filter(is_later).collect();
    if numbers.is_empty() && newest.is_none() {
        numbers.push(least);
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
