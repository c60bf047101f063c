//! Repair: quarantines corrupt units, keeps the rest, and leaves a gap in their place, which
//! readers get as an error.
//!
//! # The crash argument
//!
//! The corrupt bytes are first copied under `quarantine/` and synced. Then the repaired segment is
//! written completely to a temporary file, with every valid unit at its old offset. It is synced
//! and renamed over the corrupt one. So a crash leaves the corrupt segment or the repaired one, and
//! never less than the valid units and the corrupt bytes together. The clean end is dropped from
//! the manifest last. Until then the next opening finds the same corruption, or none.

mod manifest;
mod rebuild;
mod report;
mod verify;

use std::path::Path;

use esker_disk::Dir;

use crate::base::error::{Error, Result, with_causes};
use crate::base::options::OnCorruption;
use crate::base::read_options::ReadOptions;
use crate::recovery::outcome::ReadProgress;
use crate::store::directory;
use crate::store::manifest::Manifest;
use crate::store::paths::{self, RESERVE};
use crate::store::space_reserve;

pub(crate) use manifest::{RebuiltManifest, manifest, manifest_or_rebuilt};
pub(crate) use rebuild::repair_segments;
use rebuild::store_watermark;
pub use report::{QuarantinedRange, Repaired};
pub use verify::{VerifyReport, verify, verify_with};

/// Repairs the log in `dir`: quarantines corrupt commit units under `quarantine/` and keeps the
/// rest. Takes the log's lock. A log without corruption is left unchanged.
///
/// # Errors
/// [`Error::Locked`] while another handle or process has the log open for writing,
/// [`Error::NotALog`], [`Error::UnsupportedVersion`], [`Error::ForeignFile`], [`Error::Io`].
///
/// # Examples
/// ```
/// use esker_log::{ReadOptions, repair};
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("log");
/// # esker_log::Log::open(&dir)?.close()?;
/// let repaired = repair(&dir, ReadOptions::default())?;
/// assert!(repaired.quarantined.is_empty(), "nothing was corrupt");
/// # Ok::<(), esker_log::Error>(())
/// ```
pub fn repair(dir: impl AsRef<Path>, options: impl Into<ReadOptions>) -> Result<Repaired> {
    repair_with(dir, options, |_| {})
}

/// As [`repair`], and calls `progress` often: at least once per commit unit and segment. The log is
/// read again after a repair of its segments, until nothing more is found.
///
/// # Errors
/// As [`repair`].
pub fn repair_with(
    dir: impl AsRef<Path>,
    options: impl Into<ReadOptions>,
    mut progress: impl FnMut(ReadProgress),
) -> Result<Repaired> {
    let (options, progress) = (&options.into(), &mut progress);
    let dir = &*directory::open(dir.as_ref(), &*options.disk)?;
    if !paths::is_a_log(&dir.list()?) {
        return Err(directory::not_a_log(dir.path(), "it has no segments"));
    }
    let mut repaired = Repaired::default();
    if is_sound_backup(dir, options, progress)? {
        return Ok(repaired);
    }
    let _lock = directory::lock(dir)?;
    match repair_locked(dir, options, &mut repaired, progress) {
        // The next opening fills the reserve again. What was repaired so far stays repaired.
        Err(error) if error.is_no_space() && space_reserve::size(dir, RESERVE)? > 0 => {
            tracing::warn!(error = with_causes(&error), "repairing in the space of the reserve");
            dir.unlink(RESERVE)?;
            dir.sync()?;
            let outcome = repair_locked(dir, options, &mut repaired, progress);
            if outcome.is_err() {
                // Frees the space of a segment that could not be rewritten.
                let _ = directory::unlink_temporary(dir);
            }
            outcome?;
        }
        outcome => outcome?,
    }
    Ok(repaired)
}

fn repair_locked(
    dir: &dyn Dir,
    options: &ReadOptions,
    repaired: &mut Repaired,
    progress: &mut dyn FnMut(ReadProgress),
) -> Result<()> {
    let found = match Manifest::read(dir) {
        Ok(Some(found)) => found,
        Ok(None) | Err(Error::Corrupted(_)) => {
            repaired.manifest_rebuilt = true;
            let rebuilt = manifest(dir)?;
            repaired.may_be_truncated = rebuilt.may_be_truncated;
            rebuilt.manifest
        }
        Err(error) => return Err(error),
    };
    let on_corruption = OnCorruption::Quarantine;
    let quarantined = &mut repaired.quarantined;
    let manifest = repair_segments(dir, options, on_corruption, found, quarantined, progress)?;
    // A repair that quarantines anything drops the clean end, too.
    repaired.manifest_corrected |= !repaired.manifest_rebuilt
        && repaired.quarantined.is_empty()
        && manifest.clean != found.clean;
    if repaired.manifest_rebuilt {
        store_watermark(dir, &manifest, progress)?;
    }
    Ok(())
}

/// Whether it is a backup in which nothing is corrupt. The lock of a repair would make a log of its
/// own of it, which no later backup continues.
fn is_sound_backup(
    dir: &dyn Dir,
    options: &ReadOptions,
    progress: &mut dyn FnMut(ReadProgress),
) -> Result<bool> {
    if !directory::is_backup(dir)? {
        return Ok(false);
    }
    match verify_with(dir.path(), options.clone(), progress) {
        Ok(report) => Ok(report.corruption.is_empty()),
        Err(Error::Corrupted(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
