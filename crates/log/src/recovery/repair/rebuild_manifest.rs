//! Rebuilds a manifest from the segments and the watermark page.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_disk::{AlignedBuf, Dir, File, OpenMode, read_full_at};

use crate::base::error::{Corruption, Error, Result};
use crate::base::position::{Seq, SeqRange};
use crate::format::segment::HeaderError;
use crate::format::{BLOCK_BYTES, LogId, Salt, SegmentHeader};
use crate::recovery::scan::{ExaminedSegment, find_footer, known_start, read_segment_header};
use crate::store::directory;
use crate::store::manifest::Manifest;
use crate::store::paths::{self, Name};
use crate::store::segment_reader::ReadErrors;
use crate::store::segment_scan::orphan_units;
use crate::store::watermark_page::{PageReader, StoredWatermark, refuse_foreign_page};

type Files = BTreeMap<u64, (Arc<dyn File>, Option<SegmentHeader>)>;

/// A rebuilt manifest.
pub(crate) struct RebuiltManifest {
    pub(crate) manifest: Manifest,
    /// Records above the first number, up to the second, may have been truncated before.
    pub(crate) may_be_truncated: Option<SeqRange>,
}

/// Rebuilds the manifest, and writes it.
pub(crate) fn manifest(dir: &dyn Dir) -> Result<RebuiltManifest> {
    let rebuilt = rebuild(dir)?;
    if rebuilt.manifest.trim_seq > 0 {
        // The records before the oldest segment were dropped or lost; nothing decides which. So
        // this counts as a repair that quarantined bytes.
        dir.create_dir(paths::QUARANTINE)?;
    }
    rebuilt.manifest.write(dir)?;
    Ok(rebuilt)
}

/// The manifest of a log, with the trim point of the watermark page if that is later. In place of a
/// corrupt or lost one, what the other files prove, and the corruption. Changes nothing.
pub(crate) fn manifest_or_rebuilt(dir: &dyn Dir) -> Result<(Manifest, Option<Corruption>)> {
    let mut manifest = match Manifest::of_log(dir) {
        Err(Error::Corrupted(found)) => {
            return match rebuild(dir) {
                Ok(rebuilt) => Ok((rebuilt.manifest, Some(found))),
                Err(Error::NotALog { .. } | Error::Corrupted(_)) => Err(Error::Corrupted(found)),
                Err(error) => Err(error),
            };
        }
        manifest => manifest?,
    };
    let page = PageReader::stored_in(dir)?;
    let truncated = page.filter(|page| page.log == manifest.log).map_or(0, |page| page.trim);
    manifest.trim_seq = manifest.trim_seq.max(truncated);
    Ok((manifest, None))
}

/// Rebuilds a manifest from the segments and the watermark page. Changes nothing.
///
/// The trim point is the highest one proven: by the oldest segment's first number, or by the
/// watermark page, which each truncation stores and syncs. If the page is the newest data in the
/// log, its trim point is the log's. Otherwise records of the oldest segment above the proven trim
/// point may have been truncated. They are kept, because other records must not be lost, and are
/// reported. Only the oldest segment can hold such records: a truncation that returned removed the
/// segments that it covers completely.
///
/// The segments may all be of another log, restored to the wrong directory. The watermark page and
/// the temporary file of the manifest still name the right one. If either names another log than
/// the segments, nothing is written: no file decides which is right.
fn rebuild(dir: &dyn Dir) -> Result<RebuiltManifest> {
    let (files, log) = files(dir)?;
    let page = PageReader::stored_in(dir)?;
    let Some(log) = log.or(page.map(|page| page.log)) else {
        let found = "no segment has a valid header, and there is no valid watermark page";
        return Err(directory::not_a_log(dir.path(), found));
    };
    refuse_foreign_page(dir, page, log)?;
    refuse_other_log(dir, &files, page, log)?;
    refuse_unreadable_segments(dir, &files, log)?;
    let oldest = files.values().find_map(|(_, header)| *header);
    let (first, before) =
        oldest.map_or((u64::MAX, 0), |oldest| (oldest.segment, oldest.prev_segment));
    let mut manifest = Manifest {
        trim_segment: first,
        trim_seq: oldest.map_or(0, |oldest| oldest.prev_seq),
        durable: page.map_or(0, |page| page.seq),
        ..Manifest::new(log)
    };
    // That of the lost manifest is not known.
    manifest.draw_lineage();
    let (last, last_of_first) = take_segments(dir, &files, &mut manifest, (first, before))?;
    if manifest.trim_segment == u64::MAX {
        // Only the page is valid.
        let named = page.map_or(u64::MAX, |page| page.segment.max(1));
        let oldest = files.keys().next().map_or(u64::MAX, |oldest| *oldest);
        manifest.trim_segment = named.min(oldest);
    }
    let mut knows = false;
    if let Some(page) = page {
        knows = page.session >= manifest.session && page.seq >= last;
        manifest.session = manifest.session.max(page.session);
        manifest.trim_seq = manifest.trim_seq.max(page.trim);
    }
    let range = (manifest.trim_seq, last_of_first);
    let may_be_truncated =
        (!knows && range.0 < range.1).then_some(SeqRange { from: Seq(range.0), to: Seq(range.1) });
    Ok(RebuiltManifest { manifest, may_be_truncated })
}

/// Refuses segments of another log than the one that the temporary file of the manifest names.
fn refuse_other_log(
    dir: &dyn Dir,
    files: &Files,
    page: Option<StoredWatermark>,
    log: LogId,
) -> Result<()> {
    if Manifest::previous_log(dir).is_some_and(|previous| previous != log) {
        // If the page names the log of the segments, too, the temporary file is the foreign one.
        let named = files.iter().find_map(|(number, (_, header))| header.map(|_| *number));
        let foreign = match named.filter(|_| page.is_none()) {
            Some(number) => paths::segment(number),
            None => paths::next(paths::MANIFEST),
        };
        return Err(Error::ForeignFile { file: dir.path_of(&foreign) });
    }
    Ok(())
}

/// Refuses segments that the repair of the segments would refuse, before anything is written.
fn refuse_unreadable_segments(dir: &dyn Dir, files: &Files, log: LogId) -> Result<()> {
    for (&number, (file, _)) in files {
        let file_name = || dir.path_of(&paths::segment(number));
        match read_segment_header(&**file, &Manifest::new(log), number) {
            Ok(Err(HeaderError::Foreign(_))) => {
                return Err(Error::ForeignFile { file: file_name() });
            }
            Ok(Err(HeaderError::Version(version))) => {
                return Err(Error::UnsupportedVersion { file: file_name(), version });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Takes the session of the segments into `manifest`, and begins it with a segment that lost its
/// header before the oldest valid one. `first` is the number of that one, and `before` the number
/// that it names as the one before it.
///
/// Returns the last record of the log, and of the segment that the manifest begins with.
fn take_segments(
    dir: &dyn Dir,
    files: &Files,
    manifest: &mut Manifest,
    (first, before): (u64, u64),
) -> Result<(u64, u64)> {
    let (mut last, mut last_of_first) = (0, 0);
    for (&number, (file, header)) in files.iter().rev() {
        let (mut has_units, mut last_here) = (false, 0);
        let salt = Salt::new(manifest.log, number);
        // Units may be of later sessions than the header of their segment. They exceed the newest
        // segment's session at most by the openings after clean closes, which the watermark page
        // knows.
        orphan_units(file, salt, BLOCK_BYTES, None, &ReadErrors::default(), |orphan, _| {
            has_units = true;
            last_here = orphan.header.last_seq.max(last_here);
            manifest.session = manifest.session.max(orphan.header.session);
        })?;
        last = last_here.max(last);
        let session = header.map_or(0, |header| header.session);
        manifest.session = manifest.session.max(session);
        if number == manifest.trim_segment {
            last_of_first = last_here;
        }
        // Below the oldest valid header: this segment lost its own, and so did those before it. Its
        // records are missing from the number that its units or footer give, or else from the
        // first.
        let named = number == before || (manifest.trim_segment < first);
        if number < first && (has_units || named) {
            let path = dir.path_of(&paths::segment(number));
            let lost = ExaminedSegment::new(number, path, Some(Arc::clone(file)));
            let footer = find_footer(&lost, manifest)?;
            let stored = known_start(&lost, footer.as_ref(), None, manifest)?;
            manifest.trim_segment = number;
            manifest.trim_seq = stored.prev_seq.unwrap_or(0);
            last_of_first = last_here;
        }
    }
    Ok((last, last_of_first))
}

/// The segment files with their valid headers, and the id of the log they belong to.
fn files(dir: &dyn Dir) -> Result<(Files, Option<LogId>)> {
    let mut files = Files::new();
    let mut log = None;
    for name in dir.list()? {
        let Name::Segment(number) = paths::classify(&name) else { continue };
        let file = dir.open(&name, OpenMode::read())?;
        let mut block = AlignedBuf::new(BLOCK_BYTES as usize);
        let got = read_full_at(&*file, &mut block, 0)?;
        let of = SegmentHeader::log_of(&block[..got], number);
        let header = of.and_then(|of| SegmentHeader::parse(&block[..got], of, number).ok());
        if let Some(of) = of
            && *log.get_or_insert(of) != of
        {
            return Err(Error::ForeignFile { file: dir.path_of(&name) });
        }
        files.insert(number, (file, header.map(|(header, _)| header)));
    }
    Ok((files, log))
}
