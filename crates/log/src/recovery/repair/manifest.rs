//! A manifest made anew, from what the segments say.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_disk::{AlignedBuf, Dir, File, Open, read_full_at};

use super::examined::Examined;
use super::locate::{find_footer, known_start};
use crate::base::error::{Error, Result};
use crate::base::position::Seq;
use crate::format::{BLOCK, LogId, Salt, SegmentHeader};
use crate::store::directory;
use crate::store::manifest::Manifest;
use crate::store::paths::{self, Name};
use crate::store::segment_reader::ReadErrors;
use crate::store::segment_scan::orphan_units;
use crate::store::watermark_page::{PageReader, refuse_foreign_page};

type Files = BTreeMap<u64, (Arc<dyn File>, Option<SegmentHeader>)>;

/// A manifest made anew.
pub(crate) struct Anew {
    pub(crate) manifest: Manifest,
    /// Records above the first number, up to the second, may have been truncated before.
    pub(crate) may_be_truncated: Option<(Seq, Seq)>,
}

/// Makes a manifest from what the segments and the watermark page say.
///
/// The trim point is the highest that something proves: the oldest segment's first number, or that of
/// the watermark page, which each truncation stores and syncs. Where the page is the newest thing in
/// the log, its trim point is the log's. Otherwise records of the oldest segment above the proven
/// point may have been truncated. They are kept, because the others must not be lost, and reported.
/// Only the oldest segment can hold such records: a truncation that returned removed the segments
/// that it covers whole.
pub(crate) fn manifest(dir: &dyn Dir) -> Result<Anew> {
    let (files, log) = files(dir)?;
    let page = match PageReader::of_any_log(dir)? {
        Some(look) => look.stored().ok().flatten(),
        None => None,
    };
    let Some(log) = log.or(page.map(|page| page.log)) else {
        let found = "no segment has a sound header, and the watermark page says nothing";
        return Err(directory::not_a_log(dir.path(), found));
    };
    refuse_foreign_page(dir, page, log)?;
    let oldest = files.values().find_map(|(_, header)| *header);
    let (first, before) =
        oldest.map_or((u64::MAX, 0), |oldest| (oldest.segment, oldest.prev_segment));
    let mut manifest = Manifest {
        trim_segment: first,
        trim_seq: oldest.map_or(0, |oldest| oldest.prev_seq),
        durable: page.map_or(0, |page| page.seq),
        ..Manifest::new(log)
    };
    // The last record, and that of the segment which the manifest begins with.
    let (mut last, mut last_of_first) = (0, 0);
    for (&number, (file, header)) in files.iter().rev() {
        let (mut has_units, mut last_here) = (false, 0);
        let salt = Salt::new(log, number);
        // Units may be of later sessions than the header of their segment, but not than the newest
        // segment's by more than the openings after clean closes; the watermark page knows.
        orphan_units(file, salt, BLOCK, None, &ReadErrors::default(), |orphan, _| {
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
        // Below the oldest header: one that lost its own, as those before it did. What stood in it is
        // missed from the number on that its units or its footer tell, or else from the first.
        let named = number == before || (manifest.trim_segment < first);
        if number < first && (has_units || named) {
            let lost = Examined::missing_header(dir, number, Some(Arc::clone(file)), String::new());
            let footer = find_footer(&lost, &manifest)?;
            let told = known_start(&lost, footer.as_ref(), None, &manifest)?;
            manifest.trim_segment = number;
            manifest.trim_seq = told.prev_seq.unwrap_or(0);
            last_of_first = last_here;
        }
    }
    if manifest.trim_segment == u64::MAX {
        // Nothing is sound but the page.
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
    if manifest.trim_seq > 0 {
        // What stood before the oldest segment was dropped, or it was lost: nothing tells which. So
        // this counts as a repair that put something aside.
        dir.create_dir(paths::QUARANTINE)?;
    }
    manifest.write(dir)?;
    let range = (manifest.trim_seq, last_of_first);
    let may_be_truncated = (!knows && range.0 < range.1).then_some((Seq(range.0), Seq(range.1)));
    Ok(Anew { manifest, may_be_truncated })
}

/// The segments' files, with those of their headers that are sound, and whose log they are.
fn files(dir: &dyn Dir) -> Result<(Files, Option<LogId>)> {
    let mut files = Files::new();
    let mut log = None;
    for name in dir.list()? {
        let Name::Segment(number) = paths::classify(&name) else { continue };
        let file = dir.open(&name, Open::read())?;
        let mut block = AlignedBuf::new(BLOCK as usize);
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
