//! A manifest made anew, from what the segments say.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_disk::{AlignedBuf, Dir, File, Open, read_full_at};

use super::examined::Examined;
use super::place::{find_footer, place_told};
use crate::directory;
use crate::error::{Error, Result};
use crate::format::{BLOCK, LogId, Salt, SegmentHeader};
use crate::image::Trouble;
use crate::layout::{self, Name};
use crate::manifest::Manifest;
use crate::mark::Look;
use crate::scan::strays;

type Files = BTreeMap<u64, (Arc<dyn File>, Option<SegmentHeader>)>;

/// Makes a manifest from what the segments say.
pub(crate) fn manifest(dir: &dyn Dir) -> Result<Manifest> {
    let (files, log) = files(dir)?;
    let sound = files.values().find_map(|(_, header)| *header);
    let Some((oldest, log)) = sound.zip(log) else {
        return Err(directory::not_a_log(dir.path(), "no segment has a sound header"));
    };
    let mut manifest = Manifest {
        floor_segment: oldest.segment,
        floor_seq: oldest.prev_seq,
        ..Manifest::new(log)
    };
    for (&number, (file, header)) in files.iter().rev() {
        let mut has_units = false;
        let salt = Salt::new(log, number);
        // Units may be of later sessions than the header of their segment, but not than the newest
        // segment's by more than the openings after clean closes; the mark page knows.
        strays(file, salt, BLOCK, None, &Trouble::default(), |stray, _| {
            has_units = true;
            manifest.session = manifest.session.max(stray.header.session);
        })?;
        let session = header.map_or(0, |header| header.session);
        manifest.session = manifest.session.max(session);
        // Below the oldest header: one that lost its own, as those before it did. What stood in it is
        // missed from the number on that its units or its footer tell, or else from the first.
        let named = number == oldest.prev_segment || manifest.floor_segment < oldest.segment;
        if number < oldest.segment && (has_units || named) {
            let lost = Examined::beheaded(dir, number, Some(Arc::clone(file)), String::new());
            let footer = find_footer(&lost, &manifest)?;
            let told = place_told(&lost, footer.as_ref(), None, &manifest)?;
            manifest.floor_segment = number;
            manifest.floor_seq = told.prev_seq.unwrap_or(0);
        }
    }
    if let Some(look) = Look::open(dir, manifest.log)?
        && let Ok(Some(told)) = look.told()
    {
        manifest.session = manifest.session.max(told.session);
    }
    if manifest.floor_seq > 0 {
        // What stood before the oldest segment was dropped, or it was lost: nothing tells which. So
        // this counts as a repair that put something aside.
        dir.create_dir(layout::QUARANTINE)?;
    }
    manifest.write(dir)?;
    Ok(manifest)
}

/// The segments' files, with those of their headers that are sound, and whose log they are.
fn files(dir: &dyn Dir) -> Result<(Files, Option<LogId>)> {
    let mut files = Files::new();
    let mut log = None;
    for name in dir.list()? {
        let Name::Segment(number) = layout::classify(&name) else { continue };
        let file = dir.open(&name, Open::read())?;
        let mut block = AlignedBuf::new(BLOCK as usize);
        let got = read_full_at(&*file, &mut block, 0)?;
        let of = SegmentHeader::log_of(&block[..got], number);
        let header = of.and_then(|of| SegmentHeader::parse(&block[..got], of, number).ok());
        if let Some(of) = of
            && *log.get_or_insert(of) != of
        {
            return Err(Error::Foreign { file: dir.path_of(&name) });
        }
        files.insert(number, (file, header.map(|(header, _)| header)));
    }
    Ok((files, log))
}
