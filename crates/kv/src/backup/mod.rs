//! Backup: copies the records of a store to a new log, up to one durable position.
//!
//! # Why it is consistent
//!
//! The state of a store at a position is the replay of its log from the oldest record to there; see
//! [`crate::durability::open`]. The copy has all records from the oldest to the last one that was
//! durable, under their numbers. They are read in order, beside writers.
//!
//! Cleaning may drop records that were not copied yet. Everything live among them was copied to the
//! tail before, and whatever replaced the others is durable. So the backup continues with the
//! oldest record that is left, up to the position that is durable by then. At the end it drops from
//! the copy what the source has dropped: a delete may be among what it missed, and a value that
//! this delete deleted among what it has. In an open store, cleaning waits from then on, so that
//! the end moves once; writers do not wait for it meanwhile.
//!
//! Where cleaning has dropped all records, nothing lives. The copy has none either, and the same
//! position.
//!
//! # What a crash leaves
//!
//! The new log belongs to a component of its own until all of it is durable. So no store opens it.
//! One durable step then makes it the log of a store.

mod source;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use esker_log::{Append, Component, Log, Policy, PriorShutdown, ReadOnlyLog, Seq};

use crate::base::operation_errors::BackupError;
use crate::base::options::{COMPONENT, StoreBuilder};
use crate::base::store_error::StoreError;
use crate::base::trim_retries::TrimRetries;
use crate::record::{Change, Record};
use crate::state::keyspaces::DEFAULT_ID;
use crate::state::store_writer::StoreWriter;
use source::Source;

/// The component of a backup that is not complete.
pub const UNFINISHED_BACKUP: Component = Component(*b"ESKRKVBU");

/// Copies the store whose log this is to a new store, at a durable position, which it returns.
/// Takes no lock, so that it works beside a writer in another process. `to` names the directory and
/// its options. See [`Store::backup`](crate::Store::backup).
///
/// A writer's cleaning is not held up. Each time it drops records that this call has not copied
/// yet, the position to reach moves on. After a hundred times the call fails with
/// [`BackupError::Trimmed`]: the writer is faster than the backup. Then use
/// [`Store::backup`](crate::Store::backup) in the writer's process.
///
/// # Errors
/// [`BackupError`].
///
/// # Examples
/// ```
/// use esker_kv::{Store, backup_log};
/// use esker_log::ReadOnlyLog;
/// # let dir = tempfile::tempdir().unwrap();
/// # let (dir, copy) = (dir.path().join("store"), dir.path().join("copy"));
/// let store = Store::open(&dir)?; // often in another process
/// store.keyspace().put("colour", "blue")?.blocking_wait()?;
/// let position = backup_log(&ReadOnlyLog::open(&dir)?, Store::builder(&copy))?;
/// assert_eq!(position, store.durable());
/// let copy = Store::open(&copy)?;
/// assert_eq!(copy.keyspace().get("colour")?.as_deref(), Some(&b"blue"[..]));
/// # Ok::<(), esker_kv::Error>(())
/// ```
pub fn backup_log(log: &ReadOnlyLog, to: StoreBuilder) -> Result<Seq, BackupError> {
    log.component().expect(COMPONENT)?;
    backup(&mut source::LogReader(log), &to)
}

impl StoreWriter {
    /// Copies everything that was accepted before this call, and maybe more.
    pub(crate) fn backup(&self, dir: PathBuf) -> Result<Seq, BackupError> {
        self.state().refuse_if_closing()?;
        self.state().gap().refuse().map_err(StoreError::Quarantined)?;
        self.log.barrier()?.blocking_wait()?;
        let mut options = self.options().clone();
        options.log.must_exist = false;
        // The pool of huge pages, and the disk of that reserve, are those of the original.
        (options.log.huge_pages, options.log.shared_reserve) = (false, None);
        backup(&mut source::OpenStore::new(self), &StoreBuilder { dir, options })
    }
}

fn backup(source: &mut impl Source, to: &StoreBuilder) -> Result<Seq, BackupError> {
    let StoreBuilder { dir, options } = to;
    options.validate()?;
    refuse_unless_empty(to)?;
    let mut log = options.for_log();
    // It is made durable at the end.
    log.policy = Policy::Periodic(Duration::from_secs(1));
    log.component = Some(UNFINISHED_BACKUP);
    let outcome = match Log::builder(dir).options(log).open() {
        // Another backup to this directory began after the check.
        Ok(log) if log.storage().recovery().prior_shutdown != PriorShutdown::New => {
            return Err(BackupError::NotEmpty { dir: dir.clone() });
        }
        Ok(log) => write(source, &log),
        // Creating a log fails with the error of the system.
        Err(esker_log::OpenError::Log(esker_log::LogError::Io(cause))) if cause.is_no_space() => {
            let (wanted, durable) = (u64::from(options.log.segment_size), Seq::ZERO);
            Err(esker_log::Error::NoSpace { dir: dir.clone(), wanted, durable, cause }.into())
        }
        Err(error) => Err(error.into()),
    };
    if let Err(error) = &outcome {
        tracing::debug!(%error, "removing an unfinished backup");
        if let Err(error) =
            esker_log::component::discard(dir, UNFINISHED_BACKUP, &*options.log.disk)
        {
            tracing::warn!(%error, dir = %dir.display(), "failed to remove an unfinished backup");
        }
    }
    outcome
}

/// Writes the backup to a new log, and makes it a store.
fn write(source: &mut impl Source, log: &Log) -> Result<Seq, BackupError> {
    let CopiedRange { first, last } = copy(source, log)?;
    log.barrier()?.blocking_wait()?;
    // Also where nothing was dropped meanwhile: what is before the first record was dropped once.
    log.retention().truncate_before(first)?;
    log.component().set_component(UNFINISHED_BACKUP, COMPONENT, &[])?;
    if let Err(error) = log.close() {
        // Its first opening recovers it.
        tracing::warn!(%error, "failed to close a backup, which is complete");
    }
    Ok(last)
}

/// The records of a backup.
struct CopiedRange {
    first: Seq,
    last: Seq,
}

fn copy(source: &mut impl Source, log: &Log) -> Result<CopiedRange, BackupError> {
    let mut left = source.begin()?;
    let mut copied = CopiedRange { first: Seq::ZERO, last: Seq::ZERO };
    let mut begins = true;
    let mut trim_retries = TrimRetries::default();
    while copied.last < left.end {
        source.refuse_if_closed()?;
        match left.stream.try_next() {
            Ok(Some(batch)) => {
                let records: Vec<_> =
                    batch.iter().map(|record| (record.seq, record.payload)).collect();
                if let Some(first) = batch.iter().next().filter(|_| begins) {
                    copied.first = first.seq;
                    begins = false;
                    // The first record of the copy may follow any number.
                    if copied.last == Seq::ZERO {
                        copied.last = first.prev;
                    }
                }
                // The whole batch, also past the end: it has all of a store's batch.
                let written = log.write(Append::numbered(copied.last, &records));
                drop(written.map_err(esker_log::Error::from)?);
                debug_assert!(batch.last().is_some(), "a batch of a stream has records");
                copied.last = batch.last().unwrap_or(copied.last);
            }
            Ok(None) if begins && left.is_none() => return skip_all(log, copied.last, left.end),
            Ok(None) => return Err(esker_log::Error::NotFound { seq: left.end }.into()),
            Err(esker_log::ReadError::Trimmed(trimmed)) => {
                trim_retries.count(trimmed)?;
                source.hold_cleaning()?;
                left = source.begin()?;
                begins = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(copied)
}

/// Gives the copy of a store without records the position of its source: a record of that number,
/// which is dropped with all before it. It deletes a key that is not there.
fn skip_all(log: &Log, copied: Seq, end: Seq) -> Result<CopiedRange, BackupError> {
    debug_assert!(copied < end, "the copy has not reached its end");
    let mut payload = Vec::new();
    Record { keyspace: DEFAULT_ID, key: b"", change: Change::Delete }.encode(&mut payload);
    let before = if copied == Seq::ZERO { Seq(end.0 - 1) } else { copied };
    let written = log.write(Append::numbered(before, &[(end, &*payload)]));
    drop(written.map_err(esker_log::Error::from)?);
    Ok(CopiedRange { first: end.next(), last: end })
}

fn refuse_unless_empty(to: &StoreBuilder) -> Result<(), BackupError> {
    let dir = &to.dir;
    let names = match to.options.log.disk.open_dir(dir) {
        Ok(dir) => dir.list().map_err(esker_log::Error::from)?,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(esker_log::Error::from(cause).into()),
    };
    if names.is_empty() { Ok(()) } else { Err(BackupError::NotEmpty { dir: dir.clone() }) }
}
