//! Reads a whole log and reports corruption. Changes nothing and needs no lock.
//!
//! # Concurrent writer
//!
//! A pass reads the watermark page, then the manifest, then the list of files, then the files. So
//! everything at or below the stored watermark is in the listed files, or has left the log. Then:
//!
//! - A segment below the trim point of a manifest read *after* the files has left the log. Its file
//!   may hold anything, because a file is reused only when that manifest is durable. It does not
//!   count.
//! - A unit with a record at or below the watermark was durable before the pass began. If its check
//!   fails, it is corrupt, whatever a writer does meanwhile.
//! - A unit above the watermark may still be in flight. If the page or the manifest changed during
//!   the pass, there is a writer, and such a unit is not classified. If neither changed, the pass
//!   is repeated until two find the same. By then the durable lower bound in a later unit is true,
//!   so a valid log does not show such a hole twice.
//! - A pass during which the session changed, or which overlapped a recovery, decides nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::{Dir, Disk};

use super::rebuild::scan_all;
use super::rebuild_manifest::manifest_or_rebuilt;
use crate::base::error::{Corruption, Error, Result};
use crate::base::operation_errors::RepairError;
use crate::base::position::{Seq, SeqRange};
use crate::base::read_options::ReadOptions;
use crate::format::Salt;
use crate::format::decode::LocatedRecord;
use crate::format::unit::UnitKind;
use crate::recovery::explained;
use crate::recovery::outcome::ReadProgress;
use crate::recovery::scan::{ClassifiedLog, ExaminedSegment, SegmentRange};
use crate::store::directory;
use crate::store::manifest::Manifest;
use crate::store::paths::MANIFEST;
use crate::store::segment_reader::SegmentReader;
use crate::store::segment_scan::{ValidUnit, valid_unit};
use crate::store::watermark_page::PageReader;

/// The result of [`verify`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// LiveSegment segments.
    pub segments: u64,
    /// Valid commit units, except those that were truncated.
    pub units: u64,
    /// Records in them that were not truncated.
    pub records: u64,
    /// Bytes in them, headers and padding included.
    pub bytes: u64,
    /// The number before the first record.
    pub after: Seq,
    /// The last valid record.
    pub last: Seq,
    /// The highest durable lower bound found.
    pub durable_bound: Seq,
    /// Corruption, in order. Empty in a valid log.
    pub corruption: Vec<Corruption>,
    /// Gaps that an earlier repair left, in order.
    pub quarantined: Vec<SeqRange>,
}

/// Reads every live byte of the log in `dir` and reports all corruption.
///
/// With a concurrent writer, commits made meanwhile are not checked.
///
/// # Errors
/// [`RepairError::NotALog`], [`RepairError::UnsupportedVersion`], [`RepairError::ForeignFile`],
/// [`LogError::Io`]. Corruption is part of the report, also that of the manifest. It is
/// [`RepairError::Corrupted`] only where the other files do not name the log.
///
/// [`RepairError::NotALog`]: crate::RepairError::NotALog
/// [`RepairError::UnsupportedVersion`]: crate::RepairError::UnsupportedVersion
/// [`RepairError::ForeignFile`]: crate::RepairError::ForeignFile
/// [`LogError::Io`]: crate::LogError::Io
/// [`RepairError::Corrupted`]: crate::RepairError::Corrupted
///
/// # Examples
/// ```
/// use esker_log::{ReadOptions, verify};
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("log");
/// # esker_log::Log::open(&dir)?.close()?;
/// let report = verify(&dir, ReadOptions::default())?;
/// assert!(report.corruption.is_empty());
/// # Ok::<(), esker_log::Error>(())
/// ```
pub fn verify(
    dir: impl AsRef<Path>,
    options: impl Into<ReadOptions>,
) -> Result<VerifyReport, RepairError> {
    verify_with(dir, options, |_| {})
}

/// As [`verify`], and calls `progress` often: at least once per commit unit and segment. The log is
/// read again while a writer changes what looks corrupt.
///
/// # Errors
/// As [`verify`].
pub fn verify_with(
    dir: impl AsRef<Path>,
    options: impl Into<ReadOptions>,
    mut progress: impl FnMut(ReadProgress),
) -> Result<VerifyReport, RepairError> {
    let disk = options.into().disk;
    verify_dir(dir.as_ref(), &*disk, &mut progress).map_err(RepairError::narrow)
}

fn verify_dir(
    dir: &Path,
    disk: &dyn Disk,
    mut progress: &mut dyn FnMut(ReadProgress),
) -> Result<VerifyReport> {
    let dir = &*directory::open(dir, disk)?;
    let mut last: Option<Result<VerifyReport>> = None;
    for n in 0..PASSES_MAX {
        if n > 0 {
            std::thread::sleep(NEXT_PASS_PAUSE);
        }
        let now = match pass(dir, &mut progress) {
            Ok(Pass { report, is_final: true }) => return Ok(with_cause(dir, report)),
            Ok(Pass { report, .. }) => Ok(report),
            Err(error @ (Error::Io(_) | Error::Corrupted(_))) => Err(error),
            Err(error) => return Err(error),
        };
        let same = match (&last, &now) {
            (Some(Ok(before)), Ok(now)) => before.corruption == now.corruption,
            (Some(Err(before)), Err(now)) => before.to_string() == now.to_string(),
            _ => false,
        };
        if same {
            return match now {
                Ok(report) => Ok(with_cause(dir, report)),
                Err(Error::Corrupted(_)) => without_manifest(dir, &mut progress),
                Err(error) => Err(error),
            };
        }
        last = Some(now);
    }
    last.unwrap_or(Ok(VerifyReport::default()))
}

/// Reads the segments of a log whose manifest is corrupt or lost, as a repair would.
fn without_manifest(dir: &dyn Dir, progress: &mut dyn FnMut(ReadProgress)) -> Result<VerifyReport> {
    let (manifest, corruption) = manifest_or_rebuilt(dir)?;
    let found = scan_all(dir, &manifest, PageReader::stored_in(dir)?, progress)?;
    let mut report = report(dir, &found, &manifest, &found.manifest)?;
    report.corruption.splice(0..0, corruption);
    Ok(report)
}

/// Says of the first corruption which file is newer than which, if the files show it.
fn with_cause(dir: &dyn Dir, mut report: VerifyReport) -> VerifyReport {
    if let (Some(first), Ok(manifest)) = (report.corruption.first_mut(), Manifest::of_log(dir)) {
        *first = explained(dir, &manifest, first.clone());
    }
    report
}

/// The number of passes at most, while a writer changes the directory.
const PASSES_MAX: usize = 8;
/// The pause before a repeated pass.
const NEXT_PASS_PAUSE: Duration = Duration::from_millis(1);

struct Pass {
    report: VerifyReport,
    /// The findings hold, whatever a writer did meanwhile.
    is_final: bool,
}

fn pass(dir: &dyn Dir, progress: &mut dyn FnMut(ReadProgress)) -> Result<Pass> {
    let page = PageReader::of_any_log(dir)?;
    let stored = || page.as_ref().and_then(|page| page.stored().ok().flatten());
    let before = stored();
    let manifest = Manifest::of_log(dir)?;
    let found = scan_all(dir, &manifest, before, progress)?;
    let mut now = Manifest::of_log(dir)?;
    let moved = stored() != before || now != manifest;
    if let Some(page) = before.filter(|stored| stored.log == manifest.log) {
        // As opening does.
        now.trim_seq = now.trim_seq.max(page.trim);
    }
    let mut report = report(dir, &found, &manifest, &now)?;
    if report.corruption.is_empty() {
        return Ok(Pass { report, is_final: true });
    }
    let before = before.filter(|stored| stored.log == manifest.log);
    let session = before.map(|stored| stored.session);
    if now.session != manifest.session || session.is_some_and(|stored| stored != now.session) {
        return Ok(Pass { report, is_final: false });
    }
    let durable = before.map_or(0, |stored| stored.seq);
    let is_final = report.corruption.iter().any(|corruption| corruption.after.0 < durable);
    if moved {
        report.corruption.retain(|corruption| corruption.after.0 < durable);
        return Ok(Pass { report, is_final: true });
    }
    Ok(Pass { report, is_final })
}

/// Reports what is still in the log.
fn report(
    dir: &dyn Dir,
    found: &ClassifiedLog,
    manifest: &Manifest,
    now: &Manifest,
) -> Result<VerifyReport> {
    let trim = now.trim_seq;
    let segments: Vec<_> =
        found.segments.iter().filter(|segment| segment.number >= now.trim_segment).collect();
    let mut report = VerifyReport {
        segments: segments.len() as u64,
        after: Seq(segments.first().map_or(0, |first| first.prev_seq).max(trim)),
        last: Seq(segments.last().map_or(found.last, |last| last.last())),
        durable_bound: Seq(found.durable_bound),
        corruption: found.corruption(now, &dir.path_of(MANIFEST)),
        ..VerifyReport::default()
    };
    for segment in &segments {
        for range in &segment.ranges {
            match range {
                // All of it was truncated.
                SegmentRange::Valid(run) if run.last.header.last_seq <= trim => {}
                SegmentRange::Valid(run) if run.first.header.prev_seq >= trim => {
                    report.units += run.units;
                    report.records += run.records;
                    report.bytes += run.bytes;
                    report_gap(&mut report, &run.first);
                }
                SegmentRange::Valid(run) => {
                    for unit in run.units(segment, Salt::new(manifest.log, segment.number))? {
                        if unit.header.last_seq > trim {
                            report.units += 1;
                            report.records += readable(segment, manifest, &unit, trim)?;
                            report.bytes += u64::from(unit.header.span());
                            report_gap(&mut report, &unit);
                        }
                    }
                }
                SegmentRange::Corrupt { .. } => {}
            }
        }
    }
    Ok(report)
}

/// Reports the gap, if this unit is one.
fn report_gap(report: &mut VerifyReport, unit: &ValidUnit) {
    let (from, to) = (unit.header.prev_seq, unit.header.last_seq);
    if unit.header.kind == UnitKind::Gap && from < to {
        report.quarantined.push(SeqRange { from: Seq(from), to: Seq(to) });
    }
}

/// The number of records of a unit above the trim point.
fn readable(
    segment: &ExaminedSegment,
    manifest: &Manifest,
    unit: &ValidUnit,
    trim: u64,
) -> Result<u64> {
    let all = u64::from(unit.header.records);
    let Some(file) = segment.file.as_ref().filter(|_| unit.header.prev_seq < trim) else {
        return Ok(all);
    };
    let mut image = SegmentReader::new(Arc::clone(file))?;
    let salt = Salt::new(manifest.log, segment.number);
    let mut above = 0;
    let count = |record: LocatedRecord<'_>| above += u64::from(record.seq > trim);
    let _ = valid_unit(&mut image, salt, unit.offset, count)?;
    Ok(above)
}
