//! Backup: copies a log, segment by segment, to another directory, beside its writer.
//!
//! # What the copy is
//!
//! A log that was closed cleanly at one durable position, with the id of the original: the same
//! bytes up to there. A segment that the destination has is not copied again. It counts as there if
//! its header is that of the original, and its footer and its last unit lead to the header of the
//! segment after it.
//!
//! Each segment that is copied is read back and checked, unit by unit, before it gets its name. If
//! the check fails because the writer dropped the segment meanwhile, the copy starts over with the
//! segments that are left.
//!
//! # What a crash leaves
//!
//! The first backup to a directory belongs to a component of its own until it is complete, so
//! nothing else opens it; the next backup completes it.
//!
//! A later backup first removes the clean end from the manifest of the copy, durably. Then segments
//! get their names in ascending order; the last one of the backup before is replaced by a longer
//! one. After each of these steps the copy is a log that was not closed, with everything that it
//! had. The clean end of the manifest comes after all of them, and only then the segments go that
//! the original has dropped, as after any trim.

mod dest;
mod segment;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use esker_disk::Dir;

use crate::base::error::{Error, Result, corruption_at};
use crate::base::position::{Position, Seq};
use crate::base::read_options::ReadOptions;
use crate::follower::ReadOnlyLog;
use crate::format::{BLOCK, LogId};
use crate::log::Log;
use crate::read::source::Source;
use crate::recovery::density;
use crate::store::app_metadata;
use crate::store::segment_table::Segment;
use crate::store::snapshot_files;
use dest::{CopiedLog, Dest};
use segment::{Copied, Invalid};

/// How often a backup starts over because its segments were dropped before they were copied.
const TRIES: usize = 100;

/// What a backup did.
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

/// The log that is copied.
struct Origin<'a> {
    dir: &'a dyn Dir,
    id: LogId,
    session: u64,
    /// What is durable now.
    now: &'a dyn Fn() -> Result<Arc<dyn Source>>,
}

impl Log {
    /// Copies the log, up to what is durable now, to a directory, and makes the copy durable. The
    /// copy is a log with the same id that was closed cleanly. If the directory has an earlier
    /// backup of this log, only what has changed since is copied: new segments, and the last one.
    /// Segments and snapshots that left the log leave the copy. The copy has the offsets of
    /// consumers, none of them after its last record.
    ///
    /// Appending continues meanwhile. The call blocks for the time of reading and writing the
    /// copied bytes, and reading them back; memory is a few megabytes, and 200 bytes per commit of
    /// one segment.
    ///
    /// # Errors
    /// [`Error::NotThisBackup`] if the directory holds anything else, or was opened for writing
    /// since; [`Error::WrongComponent`] for the log of a component, which has a backup of its own;
    /// [`Error::Trimmed`] if the log drops segments faster than they are copied;
    /// [`Error::Corrupted`], [`Error::Locked`], [`Error::Closed`] and [`Error::Io`]. An earlier
    /// backup is still a log then, with all its records that the original still has.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Log, ReadOnlyLog};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (dir, copy) = (dir.path().join("log"), dir.path().join("copy"));
    /// let log = Log::open(&dir)?;
    /// log.append("a record")?.blocking_wait()?;
    /// let backup = log.backup(&copy)?;
    /// assert_eq!(backup.durable, log.durable());
    /// assert_eq!(&*ReadOnlyLog::open(&copy)?.read(1)?, b"a record");
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<Backup> {
        self.refuse_if_closed()?;
        let (id, session) = (self.write.id, self.recovery().session);
        let now = || -> Result<Arc<dyn Source>> {
            self.refuse_if_closed()?;
            let source: Arc<dyn Source> = Arc::clone(&self.read) as _;
            Ok(source)
        };
        let origin = Origin { dir: &*self.write.dir, id, session, now: &now };
        back_up(&origin, &ReadOptions::from(&self.write.options), dest.as_ref())
    }
}

impl ReadOnlyLog {
    /// As [`Log::backup`], of a log that another process writes, or none.
    ///
    /// # Errors
    /// As [`Log::backup`].
    pub fn backup(&self, dest: impl AsRef<Path>) -> Result<Backup> {
        self.refresh()?;
        let metadata = self.metadata();
        let now = || self.source();
        let (id, session) = (metadata.id, metadata.session);
        let origin = Origin { dir: self.dir(), id, session, now: &now };
        back_up(&origin, self.options(), dest.as_ref())
    }
}

fn back_up(origin: &Origin<'_>, options: &ReadOptions, dest: &Path) -> Result<Backup> {
    if let Some((found, _)) = app_metadata::read(origin.dir)? {
        let dir = origin.dir.path().into();
        return Err(Error::WrongComponent { dir, found: Some(found), expected: None });
    }
    let mut dest = Dest::open(options, dest, origin.id, origin.session)?;
    for _ in 0..TRIES {
        if let Some(backup) = attempt(origin, options, &mut dest)? {
            return Ok(backup);
        }
    }
    Err(Error::Trimmed { oldest: Seq((origin.now)()?.low().seq + 1) })
}

/// `None` if a segment left the log before it was copied.
fn attempt(origin: &Origin<'_>, options: &ReadOptions, dest: &mut Dest) -> Result<Option<Backup>> {
    let source = (origin.now)()?;
    let low = source.low();
    let (limit, _) = source.limit();
    let segments = wanted(&*source, low.position, limit);
    let mut done = Backup {
        durable: Seq::ZERO,
        position: Position(limit),
        segments: segments.len(),
        copied: 0,
        bytes: 0,
    };
    let mut session = origin.session;
    let mut last = None;
    for (n, segment) in segments.iter().enumerate() {
        let next = segments.get(n + 1).map(|next| &next.header);
        if next.is_some_and(|next| dest.has(segment, next)) {
            continue;
        }
        let end = source.segments().readable(segment, limit);
        match dest.copy(segment, end, next, density(options))? {
            Copied::Valid(end, unit_session) => {
                session = session.max(unit_session);
                done.copied += 1;
                done.bytes += u64::from(end.offset);
                last = Some(end);
            }
            Copied::Invalid(Invalid { offset, after, decode_error }) => {
                let now = (origin.now)()?;
                let is_there =
                    now.segments().all().iter().any(|there| there.header == segment.header);
                if !is_there || now.low().position > low.position {
                    return Ok(None);
                }
                return Err(corruption_at(&segment.path, offset, after, decode_error));
            }
        }
    }
    let Some(end) = last else {
        return Err(corruption_at(origin.dir.path(), 0, 0, "the log has no segment"));
    };
    done.durable = Seq(end.seq);
    let snapshots = snapshot_files::list(origin.dir)?;
    let snapshots: BTreeSet<u64> = snapshots.into_iter().filter(|at| *at <= end.seq).collect();
    for at in &snapshots {
        dest.copy_snapshot(origin.dir, *at)?;
    }
    let segments = segments.iter().map(|segment| segment.number()).collect();
    let low = low.seq;
    let copied = CopiedLog { session, low, end, position: limit, segments, snapshots };
    dest.finish(origin.dir, &copied)?;
    Ok(Some(done))
}

/// The segments that hold records between two positions, in order: at least one.
fn wanted(source: &dyn Source, low: u64, limit: u64) -> Vec<Arc<Segment>> {
    let mut all = source.segments().all();
    let is_whole = |segment: &Arc<Segment>| segment.header.base + u64::from(BLOCK) <= limit;
    let upto = all.partition_point(is_whole).max(1).min(all.len());
    all.truncate(upto);
    let before = all.iter().skip(1).take_while(|next| next.header.base <= low).count();
    all.drain(..before);
    all
}
