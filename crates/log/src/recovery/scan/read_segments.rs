//! Reads the live segments of a log and continues past all corruption.
//!
//! Everything is recorded as it was read. Whether a hole is a torn tail or corruption is for the
//! classification to say.

use std::sync::Arc;

use esker_disk::Dir;

use super::classify::{MISSING, is_front_missing};
use super::examined_segment::{Contents, ExaminedSegment, RetainedState};
use super::files::{Files, Headers, ScanMode};
use super::footers::{closed, footers};
use super::live_numbers::{LiveNumber, length_before, live_numbers};
use super::locate::{find_footer, first_position, known_start, written_to};
use super::split_segment::{SplitFindings, goes_on, split_segment};
use crate::base::error::Result;
use crate::base::options::OpenCheck;
use crate::format::segment::HeaderError;
use crate::format::{BLOCK_BYTES, DecodeError, SEGMENT_MAX, SegmentHeader};
use crate::recovery::outcome::ReadProgress;
use crate::store::manifest::{End, Manifest};
use crate::store::paths;
use crate::store::segment_table::State;
use crate::store::watermark_page::StoredWatermark;

/// The manifest as it was written, and with the trim point that the watermark page has. Each
/// truncation is in both, so an older manifest does not undo it.
pub(super) struct Manifests<'a> {
    pub(super) written: &'a Manifest,
    pub(super) now: Manifest,
}

impl<'a> Manifests<'a> {
    pub(super) fn new(written: &'a Manifest, page: Option<StoredWatermark>) -> Self {
        let truncated = page.map_or(0, |page| page.trim);
        Self { written, now: Manifest { trim_seq: written.trim_seq.max(truncated), ..*written } }
    }
}

/// Reads the segments in these files.
pub(super) fn read_segments(
    dir: &dyn Dir,
    files: &mut Files,
    manifests: &Manifests<'_>,
    page: Option<StoredWatermark>,
    how: &ScanMode<'_>,
    progress: &mut dyn FnMut(ReadProgress),
) -> Result<Contents> {
    let manifest = &manifests.now;
    let numbers = live_numbers(&mut files.headers, manifest, how.read_errors)?;
    let headers = &files.headers;
    let mut segments: Vec<_> =
        numbers.iter().map(|live| not_yet_read(dir, headers, *live)).collect();
    fill_far_gaps(dir, &mut segments);
    let durable_bound = manifest.durable_bound().max(page.map_or(0, |page| page.seq));
    let clean_lies = manifest.clean.is_some_and(|end| durable_bound > end.seq);
    let mut reading = ReadProgress::default();
    for segment in &segments {
        reading.total += segment.file_len()?;
    }
    let mut reader = Reader {
        dir,
        manifests,
        how,
        front: front_base(&segments, manifest)?,
        footers: footers_of(dir, headers, &segments),
        reached: (0, manifest.trim_seq),
        durable_bound,
        clean_lies,
        reading,
        progress,
    };
    for n in 0..segments.len() {
        reader.read(&mut segments, n)?;
    }
    let newest = segments.last().map(|newest| newest.number);
    let mut lost = Vec::new();
    for number in lost_segments(headers, manifest, page.map(|page| page.segment), newest) {
        let live = LiveNumber { number, limit: u64::MAX };
        let mut segment = not_yet_read(dir, headers, live);
        segment.written_to = segment.file.as_ref().map_or(Ok(0), written_to)?;
        lost.push(segment);
    }
    let Reader { durable_bound, clean_lies, .. } = reader;
    Ok(Contents { segments, lost, durable_bound, clean_lies })
}

fn not_yet_read(dir: &dyn Dir, headers: &Headers, live: LiveNumber) -> ExaminedSegment {
    let LiveNumber { number, limit } = live;
    let (file, header, header_error) = match headers.get(&number) {
        None => (None, None, Some(MISSING.into())),
        Some((file, Ok((header, _)))) => (Some(Arc::clone(file)), Some(*header), None),
        Some((file, Err(HeaderError::Invalid(decode_error)))) => {
            (Some(Arc::clone(file)), None, Some(decode_error.to_string()))
        }
        Some((file, Err(_))) => {
            (Some(Arc::clone(file)), None, Some(DecodeError::NotAUnit.to_string()))
        }
    };
    let path = dir.path_of(&paths::segment(number));
    ExaminedSegment { header, header_error, limit, ..ExaminedSegment::new(number, path, file) }
}

/// The footers of the segments whose headers the next one continues.
fn footers_of(
    dir: &dyn Dir,
    headers: &Headers,
    segments: &[ExaminedSegment],
) -> Vec<Option<State>> {
    let pair = |n: usize| Some((segments[n].header?, segments.get(n + 1)?.header?));
    let pairs: Vec<_> = (0..segments.len()).filter_map(pair).collect();
    let mut found = footers(dir, headers, &pairs).into_iter();
    (0..segments.len()).map(|n| pair(n).and_then(|_| found.next().flatten())).collect()
}

struct Reader<'a> {
    dir: &'a dyn Dir,
    manifests: &'a Manifests<'a>,
    how: &'a ScanMode<'a>,
    /// The position of the oldest segment, if footers give it.
    front: Option<u64>,
    footers: Vec<Option<State>>,
    /// The position and the last record that the segments before reach.
    reached: (u64, u64),
    durable_bound: u64,
    clean_lies: bool,
    reading: ReadProgress,
    progress: &'a mut dyn FnMut(ReadProgress),
}

impl Reader<'_> {
    /// Reads one segment, after those before it.
    fn read(&mut self, segments: &mut [ExaminedSegment], n: usize) -> Result<()> {
        let manifest = &self.manifests.now;
        let next = segments.get(n + 1).and_then(|next| next.header);
        let is_last = n + 1 == segments.len();
        let (before, rest) = segments.split_at_mut(n);
        let segment = &mut rest[0];
        let footer = match (segment.header.is_none(), next.is_none() && !is_last) {
            (false, false) => None,
            _ => find_footer(segment, manifest)?,
        };
        (segment.base, segment.prev_seq) = match (&segment.header, before.last_mut()) {
            (Some(header), _) => (header.base, header.prev_seq),
            (None, None) => {
                let first = first_position(segment, footer.as_ref(), next.as_ref(), manifest)?;
                self.oldest(segment, next.as_ref(), first)
            }
            (None, Some(before)) => {
                let stored = known_start(segment, footer.as_ref(), next.as_ref(), manifest)?;
                before.reach(self.reached, stored, least_base(segment.limit))
            }
        };
        if let Some(next) = next {
            let length = match &segment.header {
                Some(header) => length_before(header, &next),
                // Its own position is an estimate.
                None => Some(
                    next.base
                        .saturating_sub(segment.base)
                        .clamp(u64::from(BLOCK_BYTES), u64::from(SEGMENT_MAX))
                        as u32,
                ),
            };
            segment.end = length;
            segment.next = Some((next.chain, next.prev_seq));
        } else if let Some(footer) = footer.filter(|of| !is_last && of.end <= segment.most()) {
            segment.end = Some(footer.end);
            segment.next = Some((footer.chain, footer.last_seq));
        }
        if let Some(header) = &segment.header {
            self.durable_bound = self.durable_bound.max(header.durable_bound);
        }
        self.content(segment, n)?;
        self.reached =
            (segment.base.saturating_add(segment.ranges_end().into()), segment.accounted_to());
        Ok(())
    }

    /// The position and the number before the first record of the oldest segment, which lost its
    /// header.
    fn oldest(
        &self,
        segment: &ExaminedSegment,
        next: Option<&SegmentHeader>,
        (mut base, mut prev_seq): (u64, u64),
    ) -> (u64, u64) {
        let manifest = &self.manifests.now;
        if next.is_none() {
            base = self.front.unwrap_or(base);
        }
        // The first record of a log may follow any number, which the header does not record.
        if segment.number == manifest.trim_segment && manifest.trim_seq == 0 {
            prev_seq = 0;
        }
        if is_front_missing(manifest, segment.number, prev_seq) {
            base = base.max(u64::from(2 * BLOCK_BYTES));
        }
        (base.max(least_base(segment.limit)), prev_seq)
    }

    /// Reads the content of a segment whose start is known: by its footer, or all of it.
    fn content(&mut self, segment: &mut ExaminedSegment, n: usize) -> Result<()> {
        let manifest = &self.manifests.now;
        let clean = manifest.clean.filter(|end| end.segment == segment.number);
        let clean = clean.filter(|end| self.durable_bound <= end.seq);
        let footer = self.footers[n].take();
        if let Some(state) = &footer {
            // It was written when all its units were durable.
            self.durable_bound = self.durable_bound.max(state.last_seq);
        }
        let file_len = segment.file_len()?;
        let found = match self.by_footer(segment, footer.clone(), clean)? {
            Some(found) => found,
            None => {
                let (reading, progress) = (self.reading, &mut *self.progress);
                let mut read = |at| progress(ReadProgress { read: reading.read + at, ..reading });
                split_segment(segment, manifest, clean, footer.is_some(), self.how, &mut read)?
            }
        };
        self.reading.read += file_len;
        (self.progress)(self.reading);
        self.clean_lies |= found.goes_on;
        self.durable_bound = self.durable_bound.max(found.durable_bound);
        Ok(())
    }

    /// The state of a segment without reading all of it, if that is enough for an opening.
    fn by_footer(
        &self,
        segment: &mut ExaminedSegment,
        footer: Option<State>,
        clean: Option<End>,
    ) -> Result<Option<SplitFindings>> {
        let quick = self.how.opening.filter(|options| options.check == OpenCheck::Quick);
        let (Some(options), Some(header), Some(file)) = (quick, &segment.header, &segment.file)
        else {
            return Ok(None);
        };
        if let Some(state) = footer {
            segment.kept = RetainedState::Footer(state);
            return Ok(Some(SplitFindings::default()));
        }
        let Some(end) = clean.filter(|_| segment.end.is_none()) else { return Ok(None) };
        let Some(state) = closed(self.dir, self.manifests.written, options, header, file) else {
            return Ok(None);
        };
        let goes_on = goes_on(file, header.salt(), &self.manifests.now, end, self.how)?;
        segment.kept = RetainedState::Footer(state);
        Ok(Some(SplitFindings { goes_on, ..SplitFindings::default() }))
    }
}

/// The least position of a segment that ends at this one.
fn least_base(limit: u64) -> u64 {
    if limit == u64::MAX { 0 } else { limit.saturating_sub(u64::from(SEGMENT_MAX)) }
}

/// The base of the oldest segment, if it and later segments lost their headers. The footers give
/// the length of each, and the first valid header its own base.
fn front_base(segments: &[ExaminedSegment], manifest: &Manifest) -> Result<Option<u64>> {
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
    let is_lost = |number: &u64| {
        let parsed = headers.get(number).map(|(_, parsed)| parsed);
        matches!(parsed, Some(Err(HeaderError::Invalid(found))) if *found != DecodeError::Blank)
    };
    let corrupt = headers.keys().copied().filter(is_lost);
    let closed = manifest.clean.map(|clean| clean.segment);
    let mut numbers: Vec<u64> = corrupt.chain(closed).chain(stored).filter(is_later).collect();
    if numbers.is_empty() && newest.is_none() {
        numbers.push(least);
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The most segments that are added for missing ones.
const ADDED_MAX: usize = 4096;

/// Adds missing segments where one is too short for the space up to the next valid header: a
/// segment has a length below [`SEGMENT_MAX`], so others were there.
fn fill_far_gaps(dir: &dyn Dir, segments: &mut Vec<ExaminedSegment>) {
    let longest = u64::from(SEGMENT_MAX);
    let (mut n, mut added) = (1, 0);
    while n < segments.len() && added < ADDED_MAX {
        let (before, first) = (&segments[n - 1], &segments[n]);
        let (number, limit) = (first.number, first.limit);
        let is_far = |header: SegmentHeader| limit.saturating_sub(header.base) > 2 * longest;
        let is_lost = first.header.is_none() && limit < u64::MAX;
        if is_lost && before.header.is_some_and(is_far) && before.number + 1 < number {
            let path = dir.path_of(&paths::segment(number - 1));
            let header_error = Some(MISSING.into());
            let limit = limit - longest;
            let missing = ExaminedSegment {
                header_error,
                limit,
                ..ExaminedSegment::new(number - 1, path, None)
            };
            segments.insert(n, missing);
            added += 1;
        } else {
            n += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_disk::Disk;
    use esker_disk::sim::SimDisk;

    use super::*;
    use crate::format::LogId;

    /// A header at 20 GiB is the next valid one after a segment at 0. A segment is 2 GiB long at
    /// most, so eight missing ones are not enough if they are taken for one.
    #[test]
    fn missing_segments_cover_the_space_up_to_the_next_valid_header() {
        let dir = SimDisk::new(1).create_dir(Path::new("/log")).unwrap();
        let header = SegmentHeader {
            log: LogId([7; 16]),
            segment: 1,
            session: 1,
            base: 0,
            prev_segment: 0,
            prev_seq: 0,
            durable_bound: 0,
            time_ms: 0,
            chain: 0,
            recovered: false,
            first_chain: 0,
        };
        let segment = |number: u64, limit: u64| ExaminedSegment {
            limit,
            ..ExaminedSegment::new(number, dir.path_of(&paths::segment(number)), None)
        };
        let limit = 20 << 30;
        let mut segments = vec![
            ExaminedSegment {
                header: Some(header),
                ..segment(1, limit - 9 * u64::from(BLOCK_BYTES))
            },
            segment(30, limit),
        ];
        fill_far_gaps(&*dir, &mut segments);
        let numbers: Vec<u64> = segments.iter().map(|segment| segment.number).collect();
        assert!(numbers.is_sorted() && numbers.len() == 10, "{numbers:?}");
        let mut position = 0;
        for segment in &segments {
            let ends = segment.limit.min(position + u64::from(SEGMENT_MAX));
            let fits = segment.header.is_some() || least_base(segment.limit) <= position;
            assert!(fits, "{} has no place", segment.number);
            position = ends;
        }
        assert_eq!(position, limit);
    }
}
