//! What to do about damage, once somebody decided to: put the damaged units aside, keep the rest,
//! and leave in their place a gap that readers are told of.
//!
//! # The crash argument
//!
//! A repaired segment is written aside, whole, with every sound unit at its old offset, synced, and
//! renamed over the damaged one. The damaged bytes were copied under `quarantine/` and synced
//! before. So a crash leaves the damaged segment or the repaired one, and never less than both the
//! sound units and the damaged bytes. The clean end is dropped from the manifest last; until then
//! the next opening finds the same damage, or none.

mod examine;
mod examined;
mod place;
mod rebuild;
mod take_apart;
mod verify;

use std::path::{Path, PathBuf};

use esker_disk::AlignedBuf;

use crate::error::{Error, Result};
use crate::format::{BLOCK, SegmentHeader};
use crate::image::Trouble;
use crate::layout;
use crate::manifest::Manifest;
use crate::mark::Look;
use crate::options::{OnDamage, Options};
use crate::position::Seq;

pub(crate) use rebuild::repair_segments;
pub use verify::{Report, verify};

/// A range of a segment file that was put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Aside {
    /// The segment file.
    pub file: PathBuf,
    /// The first damaged byte in it.
    pub offset: u64,
    /// How many bytes were put aside.
    pub bytes: u64,
    /// Where they are now.
    pub kept_in: Option<PathBuf>,
    /// The last sound record before.
    pub from: Seq,
    /// The last record that is gone.
    pub to: Seq,
}

/// What `repair` did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Repaired {
    /// The ranges put aside, in order. Empty when nothing was damaged.
    pub aside: Vec<Aside>,
    /// The manifest was missing or damaged, and was made anew from the segments.
    pub manifest: bool,
}

/// Repairs the log in `dir`: puts damaged commit units aside under `quarantine/` and keeps the rest.
/// Takes the log's lock. A log without damage is left as it is.
///
/// # Errors
/// [`Error::Locked`] while somebody writes to the log, [`Error::NotALog`], [`Error::Version`],
/// [`Error::Foreign`], [`Error::Io`].
pub fn repair(dir: impl AsRef<Path>, options: &Options) -> Result<Repaired> {
    let dir = dir.as_ref();
    let disk = &*options.disk;
    let options = &Options { on_damage: OnDamage::Quarantine, ..options.clone() };
    let not_a_log = |found: &str| Error::NotALog { dir: dir.into(), found: found.into() };
    let names = disk.list(dir).map_err(|cause| match cause.kind() {
        std::io::ErrorKind::NotFound => not_a_log("there is no such directory"),
        std::io::ErrorKind::NotADirectory => not_a_log("it is a file, and a log is a directory"),
        _ => cause.into(),
    })?;
    let known = |name: &String| {
        name == layout::MANIFEST || matches!(layout::classify(name), layout::Name::Segment(_))
    };
    if !names.iter().any(known) {
        return Err(not_a_log("it has no segments"));
    }
    let _lock = disk.lock(&dir.join(layout::LOCK)).map_err(|cause| match cause.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked { dir: dir.into() },
        _ => cause.into(),
    })?;
    let mut repaired = Repaired::default();
    let found = match Manifest::read(disk, dir) {
        Ok(Some(found)) => found,
        Ok(None) | Err(Error::Damaged(_)) => {
            repaired.manifest = true;
            manifest(dir, options)?
        }
        Err(error) => return Err(error),
    };
    repaired.aside = repair_segments(dir, options, found)?.1;
    Ok(repaired)
}

/// Makes a manifest from what the segments say.
pub(crate) fn manifest(dir: &Path, options: &Options) -> Result<Manifest> {
    let disk = &*options.disk;
    let mut numbers = Vec::new();
    for name in disk.list(dir)? {
        if let layout::Name::Segment(number) = layout::classify(&name) {
            numbers.push(number);
        }
    }
    let mut manifest: Option<Manifest> = None;
    for number in numbers {
        let path = layout::segment(dir, number);
        let file = disk.open(&path, esker_disk::Open::read())?;
        let mut block = AlignedBuf::new(BLOCK as usize);
        let got = esker_disk::read_full_at(&*file, &mut block, 0)?;
        let Some(log) = SegmentHeader::log_of(&block[..got], number) else {
            continue;
        };
        let Ok((header, _)) = SegmentHeader::parse(&block[..got], log, number) else {
            continue;
        };
        let manifest = manifest.get_or_insert(Manifest {
            floor_segment: number,
            floor_seq: header.prev_seq,
            ..Manifest::new(log)
        });
        if manifest.log != log {
            return Err(Error::Foreign { file: path });
        }
        // Units of a segment may be of later sessions than its header, but not than the newest
        // segment's by more than the openings after clean closes; the mark page knows.
        manifest.session = manifest.session.max(header.session);
        crate::scan::strays(&file, header.salt(), BLOCK, None, &Trouble::default(), |stray, _| {
            manifest.session = manifest.session.max(stray.header.session);
        })?;
    }
    let Some(mut manifest) = manifest else {
        let found = "no segment has a sound header".into();
        return Err(Error::NotALog { dir: dir.into(), found });
    };
    if let Some(look) = Look::open(disk, dir, manifest.log)?
        && let Ok(Some(told)) = look.told()
    {
        manifest.session = manifest.session.max(told.session);
    }
    manifest.write(disk, dir)?;
    Ok(manifest)
}
