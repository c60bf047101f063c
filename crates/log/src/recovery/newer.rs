//! Files of a directory that are not of one moment, and which of them is newer.
//!
//! A log whose files were copied one by one beside its writer looks as if a segment was lost. Each
//! file says how far the log was when it was written last, so two of them often show what happened.
//! This explains corruption that was found, and decides nothing: the same log is refused without
//! it. It reads two segments at most, so that it takes no longer for a large log.
//!
//! The contents of a file:
//!
//! - *The manifest*: the session, the first segment, and the end after a clean close. It is durable
//!   before anything of its session is written, and before a segment leaves the log.
//! - *A segment*: the session and the records of its units, and how far the log was durable when
//!   each was submitted.
//! - *The watermark page*: the session, the last durable record and its segment, the trim point.
//!   It is rarely synced, so a crash may leave it older than the rest.

use esker_disk::{Dir, OpenMode};

use super::live::DirScan;
use super::scan::read_segment_header;
use crate::base::error::{Corruption, Error, LiveCopySign, Result};
use crate::format::segment::HeaderError;
use crate::format::{BLOCK_BYTES, DecodeError};
use crate::store::manifest::Manifest;
use crate::store::paths::{self, Name};
use crate::store::segment_reader::ReadErrors;
use crate::store::segment_scan::orphan_units;
use crate::store::watermark_page::{PageReader, StoredWatermark};

/// The newest segments of which the units are read.
const SEGMENTS_READ_MAX: usize = 2;

/// Adds to a corruption which file of the directory is newer than which, if two of them show it.
pub(crate) fn explained(dir: &dyn Dir, manifest: &Manifest, corruption: Corruption) -> Corruption {
    // An error here explains nothing, and the corruption is reported in any case.
    match newer(dir, manifest) {
        Ok(Some((newer, live_copy))) => {
            Corruption { what: format!("{}; {newer}", corruption.what), live_copy, ..corruption }
        }
        Ok(None) | Err(_) => corruption,
    }
}

/// Returns the scan of a directory, or an error if it found corruption.
pub(crate) fn intact(dir: &dyn Dir, scan: DirScan) -> Result<DirScan> {
    match scan.corruption {
        Some(corruption) => Err(Error::Corrupted(explained(dir, &scan.manifest, corruption))),
        None => Ok(scan),
    }
}

/// The facts that the header and units of a segment state about the log.
struct SegmentFacts {
    number: u64,
    session: u64,
    /// Its last record.
    last: u64,
    /// The highest durable lower bound.
    durable_bound: u64,
    /// Whether no unit that does not check follows its last record. A file that is reused has
    /// bytes of its earlier life there.
    ends: bool,
}

impl SegmentFacts {
    fn name(&self) -> String {
        paths::segment(self.number)
    }
}

fn newer(dir: &dyn Dir, manifest: &Manifest) -> Result<Option<Contradiction>> {
    let page = PageReader::stored_in(dir)?;
    let page = page.filter(|page| page.log == manifest.log);
    let Some(segments) = segments(dir, manifest)? else { return Ok(None) };
    let evident = of_manifest(manifest, &segments, page.as_ref())
        .or_else(|| of_page(manifest, &segments, page.as_ref()?));
    Ok(evident.or_else(|| of_older_page(&segments, page.as_ref()?)))
}

/// The newest segments, newest first; `None` if the header of one of them is corrupt.
fn segments(dir: &dyn Dir, manifest: &Manifest) -> Result<Option<Vec<SegmentFacts>>> {
    let names = dir.list()?;
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| match paths::classify(name) {
            Name::Segment(number) => Some(number),
            _ => None,
        })
        .collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let mut found = Vec::new();
    for number in numbers {
        let file = dir.open(&paths::segment(number), OpenMode::read())?;
        let header = match read_segment_header(&*file, manifest, number)? {
            Ok((header, _)) => header,
            // Nothing was written to it yet.
            Err(HeaderError::Invalid(DecodeError::Blank)) => continue,
            // The header that cannot be read may be the one that explains the corruption.
            Err(_) => return Ok(None),
        };
        let (session, last) = (header.session, header.prev_seq);
        let durable_bound = header.durable_bound;
        let mut known = SegmentFacts { number, session, last, durable_bound, ends: true };
        let errors = ReadErrors::default();
        orphan_units(&file, header.salt(), BLOCK_BYTES, None, &errors, |unit, is_valid| {
            if is_valid {
                known.session = known.session.max(unit.header.session);
                known.last = known.last.max(unit.header.last_seq);
                known.durable_bound = known.durable_bound.max(unit.header.durable_bound);
            }
            known.ends = is_valid;
        })?;
        found.push(known);
        if found.len() == SEGMENTS_READ_MAX {
            break;
        }
    }
    Ok(Some(found))
}

/// The contradiction of two files, and how sure a sign of a copy beside a writer it is.
type Contradiction = (String, LiveCopySign);

fn newer_than(file: &str, than: &str, why: String) -> Option<Contradiction> {
    let is_of_manifest = than == paths::MANIFEST;
    let sign = if is_of_manifest { LiveCopySign::OldManifest } else { LiveCopySign::Certain };
    Some((format!("{file} is newer than {than}: {why}"), sign))
}

/// The contradiction between the manifest and another file.
fn of_manifest(
    manifest: &Manifest,
    segments: &[SegmentFacts],
    page: Option<&StoredWatermark>,
) -> Option<Contradiction> {
    let this = paths::MANIFEST;
    let sessions =
        |session| format!("it is of session {session}, and that of {}", manifest.session);
    if let Some(found) = segments.iter().find(|found| found.session > manifest.session) {
        return newer_than(&found.name(), this, sessions(found.session));
    }
    if let Some(page) = page.filter(|page| page.session > manifest.session) {
        return newer_than(paths::MARK, this, sessions(page.session));
    }
    let Some(newest) = segments.first() else {
        let first = manifest.trim_segment;
        let why = format!("the log begins with segment {first} for that, and no segment is there");
        return newer_than("the directory", this, why).filter(|_| first > 0);
    };
    if newest.number < manifest.trim_segment {
        let why = format!("the log begins with segment {} for it", manifest.trim_segment);
        return newer_than(this, &newest.name(), why);
    }
    let clean = manifest.clean?;
    if clean.segment > newest.number {
        let why = format!("the log ends in segment {} for it", clean.segment);
        return newer_than(this, &newest.name(), why);
    }
    if clean.segment == newest.number && clean.seq > newest.last && newest.ends {
        let why = format!("it has record {}, and that has {}", clean.seq, newest.last);
        return newer_than(this, &newest.name(), why);
    }
    None
}

/// The contradiction between the watermark page and a segment.
fn of_page(
    manifest: &Manifest,
    segments: &[SegmentFacts],
    page: &StoredWatermark,
) -> Option<Contradiction> {
    let this = paths::MARK;
    let newest = segments.first()?;
    if page.segment > newest.number {
        let why = format!("it has record {} as durable, in segment {}", page.seq, page.segment);
        return newer_than(this, &newest.name(), why);
    }
    if page.segment == newest.number && page.seq > newest.last && newest.ends {
        let why =
            format!("it has record {} as durable, and that ends with {}", page.seq, newest.last);
        return newer_than(this, &newest.name(), why);
    }
    if page.trim > manifest.trim_seq {
        let (dropped, kept) = (page.trim, manifest.trim_seq);
        let why = format!("records up to {dropped} were dropped for it, and up to {kept} for that");
        return newer_than(this, paths::MANIFEST, why);
    }
    None
}

/// The contradiction of a page that is older than a segment, as a crash may leave it.
fn of_older_page(segments: &[SegmentFacts], page: &StoredWatermark) -> Option<Contradiction> {
    let found = segments.iter().find(|found| found.durable_bound > page.seq)?;
    let (knows, has) = (found.durable_bound, page.seq);
    let why = format!("it has record {knows} as durable, and that has {has}");
    let (newer, _) = newer_than(&found.name(), paths::MARK, why)?;
    Some((newer, LiveCopySign::Possible))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::LogId;
    use crate::store::manifest::End;

    const LOG: LogId = LogId([7; 16]);

    /// Files of one moment: segments 4 and 5, with records up to 90, in session 3.
    fn files() -> (Manifest, Vec<SegmentFacts>, StoredWatermark) {
        let segment = |number, last| SegmentFacts {
            number,
            session: 3,
            last,
            durable_bound: last - 1,
            ends: true,
        };
        let manifest = Manifest { session: 3, trim_segment: 4, trim_seq: 60, ..Manifest::new(LOG) };
        let page =
            StoredWatermark { log: LOG, session: 3, position: 0, seq: 90, segment: 5, trim: 60 };
        (manifest, vec![segment(5, 90), segment(4, 75)], page)
    }

    fn said(
        change: impl FnOnce(&mut Manifest, &mut Vec<SegmentFacts>, &mut StoredWatermark),
    ) -> String {
        contradiction(change).0
    }

    fn contradiction(
        change: impl FnOnce(&mut Manifest, &mut Vec<SegmentFacts>, &mut StoredWatermark),
    ) -> Contradiction {
        let (mut manifest, mut segments, mut page) = files();
        change(&mut manifest, &mut segments, &mut page);
        let found = of_manifest(&manifest, &segments, Some(&page));
        let found = found.or_else(|| of_page(&manifest, &segments, &page));
        found.or_else(|| of_older_page(&segments, &page)).unwrap_or_default()
    }

    fn closed(segment: u64, seq: u64) -> Option<End> {
        Some(End { segment, offset: 8192, seq, chain: 0 })
    }

    #[test]
    fn files_of_one_moment_are_not_compared() {
        assert_eq!(said(|_, _, _| {}), "");
        assert_eq!(said(|manifest, _, _| manifest.clean = closed(5, 90)), "");
        // A file that is reused has bytes of its earlier life after its last record.
        let reused = |manifest: &mut Manifest, segments: &mut Vec<SegmentFacts>| {
            manifest.clean = closed(5, 95);
            segments[0].ends = false;
        };
        assert_eq!(said(|manifest, segments, _| reused(manifest, segments)), "");
    }

    #[test]
    fn a_later_end_after_a_clean_close_is_newer() {
        let found = said(|manifest, _, _| manifest.clean = closed(6, 120));
        assert!(found.ends_with("the log ends in segment 6 for it"), "{found}");
        let found = said(|manifest, _, _| manifest.clean = closed(5, 95));
        assert!(found.ends_with("it has record 95, and that has 90"), "{found}");
    }

    #[test]
    fn a_page_of_a_later_session_or_trim_point_is_newer_than_the_manifest() {
        let found = said(|_, _, page| page.session = 4);
        assert_eq!(found, "mark is newer than manifest: it is of session 4, and that of 3");
        let found = said(|_, _, page| page.trim = 70);
        assert!(found.starts_with("mark is newer than manifest: records up to 70 "), "{found}");
    }

    #[test]
    fn only_an_old_manifest_is_corrected_without_a_loss() {
        let sign = |(_, sign): Contradiction| sign;
        let page_of_later = contradiction(|_, _, page| page.session = 4);
        assert_eq!(sign(page_of_later), LiveCopySign::OldManifest);
        let later_segment = contradiction(|_, segments, _| segments[0].session = 4);
        assert_eq!(sign(later_segment), LiveCopySign::OldManifest);
        let later_manifest = contradiction(|manifest, _, _| manifest.clean = closed(6, 120));
        assert_eq!(sign(later_manifest), LiveCopySign::Certain);
        assert_eq!(sign(contradiction(|_, _, page| page.seq = 80)), LiveCopySign::Possible);
    }

    #[test]
    fn the_page_and_the_newest_segment_say_which_of_them_is_newer() {
        let found = said(|_, _, page| page.seq = 95);
        assert!(found.starts_with("mark is newer than "), "{found}");
        assert!(found.ends_with("it has record 95 as durable, and that ends with 90"), "{found}");
        let found = said(|_, _, page| page.seq = 80);
        assert!(found.ends_with("it has record 89 as durable, and that has 80"), "{found}");
    }
}
