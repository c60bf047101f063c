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
mod manifest;
mod place;
mod rebuild;
mod take_apart;
mod verify;

use std::path::{Path, PathBuf};

use crate::directory;
use crate::error::{Error, Result};
use crate::layout;
use crate::manifest::Manifest;
use crate::options::{OnDamage, Options};
use crate::position::Seq;

pub(crate) use manifest::{Anew, manifest};
pub(crate) use rebuild::repair_segments;
use rebuild::store_watermark;
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
    /// With a manifest made anew: records above the first number, up to the second, are readable and
    /// may have been truncated before, because nothing that is left proves the trim point. `None`
    /// where the watermark page proves it.
    pub may_be_truncated: Option<(Seq, Seq)>,
}

/// Repairs the log in `dir`: puts damaged commit units aside under `quarantine/` and keeps the rest.
/// Takes the log's lock. A log without damage is left as it is.
///
/// # Errors
/// [`Error::Locked`] while somebody writes to the log, [`Error::NotALog`], [`Error::Version`],
/// [`Error::Foreign`], [`Error::Io`].
pub fn repair(dir: impl AsRef<Path>, options: &Options) -> Result<Repaired> {
    let dir = &*directory::open(dir.as_ref(), options)?;
    let options = &Options { on_damage: OnDamage::Quarantine, ..options.clone() };
    if !layout::is_a_log(&dir.list()?) {
        return Err(directory::not_a_log(dir.path(), "it has no segments"));
    }
    let _lock = directory::lock(dir)?;
    let mut repaired = Repaired::default();
    let found = match Manifest::read(dir) {
        Ok(Some(found)) => found,
        Ok(None) | Err(Error::Damaged(_)) => {
            repaired.manifest = true;
            let anew = manifest(dir)?;
            repaired.may_be_truncated = anew.may_be_truncated;
            anew.manifest
        }
        Err(error) => return Err(error),
    };
    let (manifest, aside) = repair_segments(dir, options, found)?;
    repaired.aside = aside;
    if repaired.manifest {
        store_watermark(dir, &manifest)?;
    }
    Ok(repaired)
}
