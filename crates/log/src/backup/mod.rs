//! Backup: copies a log, segment by segment, to another directory, beside its writer.
//!
//! # What the copy is
//!
//! A log that was closed cleanly at one durable position, with the id of the original: the same
//! bytes up to there. A segment that the destination has is not copied again. It counts as there if
//! its header is valid, and its footer and its last unit lead to the header of the segment after
//! it: the checksum of a header begins the chain of its units.
//!
//! Each segment that is copied is read back and checked, unit by unit, before it gets its name. The
//! newest comes first. If the check fails because the writer dropped the segment meanwhile, it has
//! dropped all before it, too, and the copy begins after it.
//!
//! Every record of an earlier backup must be one of the log, or have been one: see `lineage`. A
//! restored copy that continued by itself has the same id, and would replace what only the backup
//! still has.
//!
//! # What a crash leaves
//!
//! The first backup to a directory belongs to a component of its own until it is complete, so
//! nothing else opens it; the next backup completes it.
//!
//! A later backup copies segments and snapshots to temporary files first. Then it removes the clean
//! end from the manifest of the copy and gives it the lineage of the log, durably, and the segments
//! get their names in ascending order; the last one of the backup before is replaced by a longer
//! one. The snapshots follow, so that none is ahead of the records. After each of these steps the
//! copy is a log that was not closed, with everything that it had. The clean end of the manifest
//! comes after all of them, and only then the segments go that the original has dropped, as after
//! any trim.
//!
//! Where the original dropped segments that the copy never had, the new ones do not follow those
//! that are there. Then nothing opens the copy from the first new name until it is complete, for a
//! few operations on names. Only the lineage of the copy changes meanwhile.

mod copy_segment;
mod dest;
mod lineage;
mod origin;
mod path_is_within;
mod restore;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::base::error::{Error, Result, Trimmed, corruption_at};
#[cfg(doc)]
use crate::base::log_error::LogError;
use crate::base::operation_errors::BackupError;
use crate::base::position::{Position, Seq};
use crate::base::read_options::ReadOptions;
use crate::consumers;
use crate::follower::reader_storage::ReadOnlyStorage;
use crate::format::BLOCK_BYTES;
use crate::log::storage::Storage;
use crate::read::source::Source;
use crate::store::app_metadata;
use crate::store::manifest::{Lineage, Manifest};
use crate::store::segment_scan::Density;
use crate::store::segment_table::Segment;
use crate::store::snapshot_files;
use copy_segment::{Copied, Invalid};
use dest::{CopiedLog, Dest};
use origin::Origin;
pub use path_is_within::path_is_within;

/// The most attempts, of which each starts over because even the newest segment was dropped before
/// it was copied.
const ATTEMPTS_MAX: usize = 100;

/// The result of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The last record of the copy; 0 when it has none.
    pub durable: Seq,
    /// The position after it.
    pub position: Position,
    /// The segments of the copy.
    pub segments: usize,
    /// How many of them this backup copied. The others were there.
    pub copied: usize,
    /// The bytes of these.
    pub bytes: u64,
}

impl Storage<'_> {
    /// Copies the log, up to what is durable now, to a directory, and makes the copy durable. The
    /// copy is a log with the same id that was closed cleanly. If the directory has an earlier
    /// backup of this log, only what has changed since is copied: new segments, and the last one.
    /// Segments and snapshots that left the log leave the copy. Where segments leave it meanwhile,
    /// the copy begins after them. The copy has the offsets of consumers, none of them after its
    /// last record.
    ///
    /// Appending continues meanwhile. The call blocks for the time of reading and writing the
    /// copied bytes, and reading them back; memory is a few megabytes, and 200 bytes per commit of
    /// one segment.
    ///
    /// # Errors
    /// [`BackupError::NotThisBackup`] if the directory holds anything else, was opened for writing
    /// since, is inside of the log, or has records that the log lost in a repair, or is of a log
    /// that was restored or copied and continued by itself; [`BackupError::WrongComponent`] for the
    /// log of a component, which has a backup of its own; [`BackupError::Trimmed`] if the log drops
    /// segments faster than one is copied; [`BackupError::Corrupted`], [`BackupError::Locked`],
    /// [`LogError::Closed`] and [`LogError::Io`]. An earlier backup is still a log then, with all
    /// its records that the original still has.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Log, ReadOnlyLog};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (dir, copy) = (dir.path().join("log"), dir.path().join("copy"));
    /// let log = Log::open(&dir)?;
    /// log.append("a record")?.blocking_wait()?;
    /// let backup = log.storage().backup(&copy)?;
    /// assert_eq!(backup.durable, log.durable());
    /// assert_eq!(&*ReadOnlyLog::open(&copy)?.read(1)?, b"a record");
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn backup(self, dest: impl AsRef<Path>) -> Result<Backup, BackupError> {
        let log = self.log;
        log.refuse_if_closed()?;
        let (id, session) = (log.write.id, self.recovery().session);
        let now = || -> Result<Arc<dyn Source>> {
            log.refuse_if_closed()?;
            let source: Arc<dyn Source> = Arc::clone(&log.read) as _;
            Ok(source)
        };
        let stream = |start| Ok(log.stream(start)?);
        let origin = Origin { dir: &*log.write.dir, id, session, now: &now, stream: &stream };
        let options = ReadOptions::from(&log.write.options);
        back_up(&origin, &options, dest.as_ref()).map_err(BackupError::narrow)
    }
}

impl ReadOnlyStorage<'_> {
    /// As [`Storage::backup`], of a log that another process writes, or none.
    ///
    /// # Errors
    /// As [`Storage::backup`].
    pub fn backup(self, dest: impl AsRef<Path>) -> Result<Backup, BackupError> {
        self.back_up_to(dest.as_ref()).map_err(BackupError::narrow)
    }

    fn back_up_to(self, dest: &Path) -> Result<Backup> {
        let log = self.reader;
        log.refresh()?;
        let metadata = self.metadata();
        let now = || log.source();
        let (id, session) = (metadata.id, metadata.session);
        let stream = |start| Ok(log.stream(start)?);
        let origin = Origin { dir: log.dir(), id, session, now: &now, stream: &stream };
        back_up(&origin, log.options(), dest)
    }
}

fn back_up(origin: &Origin<'_>, options: &ReadOptions, dest: &Path) -> Result<Backup> {
    if let Some((found, _)) = app_metadata::read(origin.dir)? {
        let dir = origin.dir.path().into();
        return Err(Error::WrongComponent { dir, found: Some(found), expected: None });
    }
    // Without them the copy is not complete, and nothing was changed yet.
    consumers::read(origin.dir, origin.id)?;
    let path = dest;
    let refuse = |found: String| Err(Error::NotThisBackup { dir: path.into(), found });
    // A relative path without a current directory is refused when it is opened.
    if path_is_within(path, origin.dir.path()).unwrap_or(false) {
        return refuse("it is inside of the log".into());
    }
    let lineage = Manifest::of_log(origin.dir)?.lineage;
    let mut dest = Dest::open(options, path, origin.id, origin.session, lineage)?;
    let copied = copy_to(&mut dest, origin, options, path);
    if copied.is_err() {
        dest.give_up();
    }
    copied
}

fn copy_to(
    dest: &mut Dest,
    origin: &Origin<'_>,
    options: &ReadOptions,
    path: &Path,
) -> Result<Backup> {
    for _ in 0..ATTEMPTS_MAX {
        // A copy that another process opens for writing meanwhile begins another lineage.
        let manifest = Manifest::of_log(origin.dir)?;
        if let Some(earlier) = dest.earlier()
            && let Some(found) = lineage::differs(origin, options, path, earlier, &manifest)?
        {
            return Err(Error::NotThisBackup { dir: path.into(), found });
        }
        if let Some(backup) = attempt(origin, options, dest, manifest.lineage)? {
            return Ok(backup);
        }
    }
    Err(Error::Trimmed(Trimmed { oldest: Seq((origin.now)()?.low().seq).next() }))
}

/// `None` if even the newest segment left the log before it was copied, or if another process began
/// another lineage meanwhile.
fn attempt(
    origin: &Origin<'_>,
    options: &ReadOptions,
    dest: &mut Dest,
    lineage: Lineage,
) -> Result<Option<Backup>> {
    dest.begin_again();
    let source = (origin.now)()?;
    let low = source.low();
    let (limit, _) = source.limit();
    let mut segments = wanted(&*source, low.position, limit);
    let mut done =
        Backup { durable: Seq::ZERO, position: Position(limit), segments: 0, copied: 0, bytes: 0 };
    let mut session = origin.session;
    let mut last = None;
    let mut low_seq = low.seq;
    for n in (0..segments.len()).rev() {
        let (segment, next) = (&segments[n], segments.get(n + 1).map(|next| &next.header));
        if next.is_some_and(|next| dest.leads_to(next)) {
            continue;
        }
        let end = source.segments().readable(segment, limit);
        match dest.copy(segment, end, next, Density::from_options(options))? {
            Copied::Valid(end, unit_session) => {
                session = session.max(unit_session);
                done.copied += 1;
                done.bytes += u64::from(end.offset);
                last = last.or(Some(end));
            }
            Copied::Invalid(Invalid { offset, after, decode_error }) => {
                let now = (origin.now)()?;
                let mut there = now.segments().all();
                there.retain(|there| there.header == segment.header);
                if there.is_empty()
                    && let Some(next) = next
                {
                    low_seq = next.prev_seq;
                    segments.drain(..=n);
                    break;
                }
                if there.is_empty() || now.low().position > low.position {
                    return Ok(None);
                }
                return Err(corruption_at(&segment.path, offset.into(), after, decode_error));
            }
        }
    }
    let Some(end) = last else {
        return Err(corruption_at(origin.dir.path(), 0, 0, "the log has no segment"));
    };
    let snapshots = snapshot_files::list(origin.dir)?;
    let snapshots: BTreeSet<u64> = snapshots.into_iter().filter(|at| *at <= end.seq).collect();
    for at in &snapshots {
        dest.copy_snapshot(origin.dir, *at)?;
    }
    let manifest = Manifest::of_log(origin.dir)?;
    if manifest.lineage != lineage {
        return Ok(None);
    }
    dest.name_files(&segments[0].header, &manifest)?;
    (done.durable, done.segments) = (Seq(end.seq), segments.len());
    let segments = segments.iter().map(|segment| segment.number()).collect();
    let copied =
        CopiedLog { session, manifest, low: low_seq, end, position: limit, segments, snapshots };
    dest.finish(origin.dir, &copied)?;
    Ok(Some(done))
}

/// The segments that hold records between two positions, in order: at least one.
fn wanted(source: &dyn Source, low: u64, limit: u64) -> Vec<Arc<Segment>> {
    let mut all = source.segments().all();
    let is_whole = |segment: &Arc<Segment>| segment.header.base + u64::from(BLOCK_BYTES) <= limit;
    let upto = all.partition_point(is_whole).max(1).min(all.len());
    all.truncate(upto);
    let before = all.iter().skip(1).take_while(|next| next.header.base <= low).count();
    all.drain(..before);
    all
}
