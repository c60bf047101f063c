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

mod rebuild;
mod rebuild_manifest;
mod report;
mod verify;

use std::path::Path;

use esker_disk::Dir;

use crate::base::error::{Error, Result, with_causes};
#[cfg(doc)]
use crate::base::log_error::LogError;
use crate::base::operation_errors::RepairError;
use crate::base::options::OnCorruption;
use crate::base::read_options::ReadOptions;
use crate::recovery::outcome::ReadProgress;
use crate::store::directory;
use crate::store::manifest::Manifest;
use crate::store::paths::{self, RESERVE};
use crate::store::space_reserve;

pub(crate) use rebuild::repair_segments;
use rebuild::store_watermark;
pub(crate) use rebuild_manifest::{RebuiltManifest, manifest, manifest_or_rebuilt};
pub use report::{QuarantinedRange, Repaired};
pub use verify::{VerifyReport, verify, verify_with};

/// Repairs the log in `dir`: quarantines corrupt commit units under `quarantine/` and keeps the
/// rest. Takes the log's lock. A log without corruption is left unchanged. Of a log that was
/// repaired, [`verify`] finds nothing, and it opens: all three read a log by the same scan.
///
/// # Errors
/// [`RepairError::Locked`] while another handle or process has the log open for writing,
/// [`RepairError::NotALog`], [`RepairError::UnsupportedVersion`], [`RepairError::ForeignFile`],
/// [`LogError::Io`]. [`RepairError::Corrupted`] if corruption is left after several attempts: what
/// was quarantined until then stays under `quarantine/`, and the log does not open.
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
pub fn repair(
    dir: impl AsRef<Path>,
    options: impl Into<ReadOptions>,
) -> Result<Repaired, RepairError> {
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
) -> Result<Repaired, RepairError> {
    repair_dir(dir.as_ref(), &options.into(), &mut progress).map_err(RepairError::narrow)
}

fn repair_dir(
    dir: &Path,
    options: &ReadOptions,
    progress: &mut dyn FnMut(ReadProgress),
) -> Result<Repaired> {
    let dir = &*directory::open(dir, &*options.disk)?;
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
        Err(RepairError::Corrupted(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use esker_disk::{Disk, StdDisk, write_all_at};

    use super::*;
    use crate::base::options::OpenCheck;
    use crate::format::{LogId, SegmentHeader};
    use crate::recovery::scan_dir;

    /// Against a repair of consecutive missing segments that put all of their space into one
    /// segment, which is longer than a segment can be: the log did not open after that.
    #[test]
    fn missing_segments_of_twenty_gibibytes_are_repaired() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("log");
        let dir = StdDisk::new().create_dir(&path).unwrap();
        let manifest =
            Manifest { session: 1, trim_segment: 1, durable: 5, ..Manifest::new(LogId([7; 16])) };
        manifest.write(&*dir).unwrap();
        let first = SegmentHeader {
            log: manifest.log,
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
        let last = SegmentHeader {
            segment: 30,
            base: 20 << 30,
            prev_segment: 29,
            prev_seq: 5,
            durable_bound: 5,
            chain: 77,
            ..first
        };
        for header in [first, last] {
            let name = paths::segment(header.segment);
            let file = dir.open(&name, esker_disk::OpenMode::create()).unwrap();
            write_all_at(&*file, &header.to_block().0, 0).unwrap();
        }
        let repaired = repair(&path, ReadOptions::default()).unwrap();
        let lost = repaired.quarantined.iter().map(|range| (range.from.0, range.to.0));
        let lost: Vec<_> = lost.filter(|(from, to)| from < to).collect();
        assert_eq!(lost, [(0, 5)]);
        let report = verify(&path, ReadOptions::default()).unwrap();
        assert_eq!(report.corruption, []);
        for check in [OpenCheck::Full, OpenCheck::Quick] {
            let options = ReadOptions { check, ..ReadOptions::default() };
            let manifest = Manifest::of_log(&*dir).unwrap();
            let scan = scan_dir(&*dir, &options, manifest, false).unwrap();
            assert_eq!(scan.corruption, None);
            assert_eq!(scan.live.last().map(|live| live.segment.number()), Some(30));
        }
    }
}
