//! Copies of a log: its records up to one durable position, and its snapshots.
//!
//! # Why it is consistent
//!
//! The state of a log at a position is the replay of its records from the oldest one to there; see
//! [`durability`](crate::durability). The checkpoint that allows a shorter replay is not copied.
//! Records keep their numbers. The caller sees to it that the records and the snapshots stay: where
//! one was dropped meanwhile, the copy fails.
//!
//! # After a crash
//!
//! A copy belongs to a component of its own until it is whole and durable. So no consensus log
//! opens it. One durable step then makes it a consensus log, which is read-only until its node has
//! a new number: see [`read_only`](crate::read_only).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::{Disk, Op};
use esker_log::{
    Append, Component, Log, Policy, PriorShutdown, ReadOnlyLog, ReadOptions, Seq, Start,
};

use crate::base::slot::Slot;
use crate::component::{self, COPY_COMPONENT, UNFINISHED_BACKUP};
use crate::durability::metadata::Metadata;
use crate::errors::manager_errors::{BackupError, OpenError};
use crate::errors::snapshot_errors::{SnapshotError, from_stream};
use crate::options::Options;
use crate::read_only::ReadOnlyReason;
use crate::state::inner::ConsensusLog;
use crate::storage_error::StorageError;

/// The most polls, and their interval, until a record that is durable for the writer is so for
/// readers. The writer reports it to them at once.
const READER_POLLS_MAX: u32 = 10_000;
const READER_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The most attempts to read the extent of a copy while snapshots come and go.
const EXTENT_TRIES: u32 = 16;

/// The result of a backup.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct BackupSummary {
    /// Logs. One without a record counts, too.
    pub logs: usize,
    /// Records of all logs.
    pub records: u64,
    /// Snapshots of all logs.
    pub snapshots: usize,
    /// Snapshots that are not whole, as [`SnapshotError::CorruptedSnapshot`], with the key of the
    /// log; the key of a log without a manager is empty. They were not copied.
    pub skipped: Vec<(Vec<u8>, SnapshotError)>,
}

/// The extent of a copy: which records and snapshots it has.
#[derive(Debug)]
pub(crate) struct Extent {
    /// No record from this one on had been dropped.
    pub(crate) oldest: Seq,
    /// The last record.
    pub(crate) last: Seq,
    pub(crate) snapshots: Vec<u64>,
}

impl Extent {
    pub(crate) fn is_empty(&self) -> bool {
        self.last == Seq::ZERO && self.snapshots.is_empty()
    }
}

/// Copies the consensus log in `dir` to a new one in `dest`, on the disk of the options: everything
/// that is durable, and its snapshots. A log that another process has open is copied as of a moment
/// at most a few milliseconds before this call. One that was not closed cleanly is opened first, so
/// that what a crash left is recovered; one that was is only read. Blocks.
///
/// The copy opens read-only, because the log may promise and accept more: see
/// [`ReadOnlyReason::Copied`](crate::ReadOnlyReason::Copied).
///
/// # Durability
/// Durable when it returns. Until then no consensus log opens `dest`. After a crash, delete `dest`.
///
/// # Errors
/// [`BackupError::NotEmpty`] for a `dest` that holds something; [`BackupError::Open`];
/// [`BackupError::Storage`], with [`StorageError::ReadOnly`] for a log that was repaired,
/// [`Trimmed`](esker_log::Error::Trimmed) when another process dropped records that were not copied
/// yet: call it again; [`NoSpace`](esker_log::Error::NoSpace). What was copied is removed.
pub fn backup_log(
    dir: impl AsRef<Path>,
    dest: impl AsRef<Path>,
    options: &Options,
) -> Result<BackupSummary, BackupError> {
    let (dir, dest) = (dir.as_ref(), dest.as_ref());
    options.validate().map_err(OpenError::InvalidOption)?;
    let disk = &*options.log.disk;
    refuse_used(disk, dest)?;
    let read = ReadOptions::on(Arc::clone(&options.log.disk));
    let reader = component::open_known(dir, read.clone())?;
    refuse_repaired(&reader)?;
    // Opening also recovers app metadata that were lost.
    let is_known = matches!(component::app_metadata(dir, &read), Ok(Some(_)));
    if !reader.storage().is_closed_cleanly() || !is_known {
        let own = Options { label: Vec::new(), ..options.clone() };
        match ConsensusLog::builder(dir).options(own).must_exist(true).open() {
            Ok(log) => log.close()?,
            Err(OpenError::Storage(StorageError::Log(esker_log::Error::Locked { .. }))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // As of its first refresh it has what opening recovered.
    let extent = Extent::read(&reader)?;
    let label = match component::app_metadata(dir, &read)? {
        Some(bytes) => Metadata::decode(&bytes).label,
        None => Vec::new(),
    };
    let mut backup = BackupSummary::default();
    // The stream ends when the reader is closed.
    let proceed = || Ok(());
    let copy = LogCopy { reader: &reader, extent: &extent, proceed: &proceed };
    // From here on the copy is this call's own, and no other backup goes to this directory.
    let log = begin_log(dest, options)?;
    let copied = copy.run(&log, &label, &mut backup).and_then(|()| finish(&log, &label));
    drop(log);
    if let Err(error) = copied {
        discard(dest, COPY_COMPONENT, disk);
        return Err(error.into());
    }
    Ok(backup)
}

impl Extent {
    /// Reads the extent of everything that a reader has, with the snapshots as of then: those that
    /// cover what is not in the log any more, and none of slots that the log does not have yet.
    fn read(reader: &ReadOnlyLog) -> Result<Self, StorageError> {
        for _ in 0..EXTENT_TRIES {
            let snapshots = reader.snapshots().list().map_err(StorageError::from_log)?;
            reader.refresh().map_err(StorageError::from_log)?;
            // What is dropped after this refresh is missed when it is copied.
            let (oldest, last) = (reader.oldest(), durable(reader)?);
            if reader.snapshots().list().map_err(StorageError::from_log)? == snapshots {
                return Ok(Self { oldest, last, snapshots });
            }
        }
        Err(trimmed(reader))
    }
}

/// The error for what another process dropped before it was copied.
fn trimmed(reader: &ReadOnlyLog) -> StorageError {
    StorageError::Log(esker_log::Error::Trimmed(esker_log::Trimmed { oldest: reader.oldest() }))
}

/// The last record that a reader can read.
pub(crate) fn durable(reader: &ReadOnlyLog) -> Result<Seq, StorageError> {
    match reader.storage().corruption() {
        Some(corruption) => Err(StorageError::Log(esker_log::Error::Corrupted(corruption))),
        None => Ok(reader.durable()),
    }
}

/// Refuses a log that was repaired: a copy would not be known to be one.
fn refuse_repaired(reader: &ReadOnlyLog) -> Result<(), StorageError> {
    match reader.storage().was_repaired().map_err(StorageError::from_log)? {
        true => Err(StorageError::ReadOnly { reason: ReadOnlyReason::Repaired }),
        false => Ok(()),
    }
}

/// Refuses a directory that holds something.
fn refuse_used(disk: &dyn Disk, dest: &Path) -> Result<(), BackupError> {
    match disk.open_dir(dest).and_then(|dir| dir.list()) {
        Ok(names) if names.is_empty() => Ok(()),
        Ok(_) => Err(BackupError::NotEmpty { dir: dest.into() }),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(StorageError::from_log(cause).into()),
    }
}

/// Removes a copy that this backup began, if it failed. `finished` is the component of one that is
/// complete.
pub(crate) fn discard(dest: &Path, finished: Component, disk: &dyn Disk) {
    let removed = match esker_log::component::discard(dest, UNFINISHED_BACKUP, disk) {
        // This copy was finished before the backup failed.
        Err(esker_log::OpenError::WrongComponent { .. }) => {
            esker_log::component::discard(dest, finished, disk)
        }
        removed => removed,
    };
    report(removed.map_err(Into::into), dest);
}

fn report(removed: esker_log::Result<()>, dest: &Path) {
    match removed {
        Ok(()) | Err(esker_log::Error::NotALog { .. }) => {}
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            dir = %dest.display(),
            "failed to remove an unfinished backup"
        ),
    }
}

/// Creates a log of a backup that is not complete in `dir`, for this backup alone.
pub(crate) fn begin(dir: &Path, options: &esker_log::Options) -> Result<Log, BackupError> {
    let used = || BackupError::NotEmpty { dir: dir.into() };
    let builder = Log::builder(dir).options(options.clone());
    match builder.open() {
        Ok(log) if log.storage().recovery().prior_shutdown == PriorShutdown::New => Ok(log),
        // Another backup to this directory began, or ended, after it was found empty: the lock of
        // the directory is that of the backup.
        Ok(_) => Err(used()),
        Err(
            esker_log::OpenError::Locked { .. }
            | esker_log::OpenError::WrongComponent { .. }
            | esker_log::OpenError::NotALog { .. },
        ) => Err(used()),
        Err(error) => {
            // What this call created. A copy that is complete is another backup's.
            report(
                esker_log::component::discard(dir, UNFINISHED_BACKUP, &*options.disk)
                    .map_err(Into::into),
                dir,
            );
            Err(StorageError::from_log(error).into())
        }
    }
}

/// Makes a copy a consensus log that is read-only, durably, and closes it.
pub(crate) fn finish(log: &Log, label: &[u8]) -> Result<(), StorageError> {
    let content = match label {
        [] => Vec::new(),
        label => Metadata { root: 0, label: label.to_vec() }.encode(),
    };
    let renamed = log.component().set_component(UNFINISHED_BACKUP, COPY_COMPONENT, &content);
    renamed.map_err(StorageError::from_log)?;
    close(log);
    Ok(())
}

/// Closes a copy that is complete and durable already. Without a clean close its first opening
/// recovers it.
pub(crate) fn close(log: &Log) {
    if let Err(error) = log.close() {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "failed to close a backup, which is complete"
        );
    }
}

/// The copy of one log.
#[derive(Clone, Copy)]
pub(crate) struct LogCopy<'a> {
    pub(crate) reader: &'a ReadOnlyLog,
    pub(crate) extent: &'a Extent,
    /// Fails when the copy must not continue. Called often.
    pub(crate) proceed: &'a dyn Fn() -> Result<(), StorageError>,
}

/// Creates the log that is copied to. It is not a consensus log yet.
pub(crate) fn begin_log(dest: &Path, options: &Options) -> Result<Log, BackupError> {
    let mut options = options.for_log();
    // It is made durable at the end.
    options.policy = Policy::Periodic(Duration::from_secs(1));
    options.component = Some(UNFINISHED_BACKUP);
    options.must_exist = false;
    // It gets one when it is opened.
    options.reserve = Some(0);
    // The pool of huge pages, and the disk of that reserve, are those of the original.
    (options.huge_pages, options.shared_reserve) = (false, None);
    begin(dest, &options)
}

impl LogCopy<'_> {
    /// Makes the copy, durably, and counts it.
    pub(crate) fn run(
        &self,
        log: &Log,
        key: &[u8],
        backup: &mut BackupSummary,
    ) -> Result<(), StorageError> {
        backup.records += self.records(log)?;
        for at in &self.extent.snapshots {
            (self.proceed)()?;
            match self.snapshot(log, *at)? {
                None => backup.snapshots += 1,
                Some(cause) => {
                    let error = SnapshotError::CorruptedSnapshot { slot: Slot(*at), cause };
                    backup.skipped.push((key.to_vec(), error));
                }
            }
        }
        backup.logs += 1;
        Ok(())
    }

    /// Copies the records, and returns their number.
    fn records(&self, log: &Log) -> Result<u64, StorageError> {
        let last = self.extent.last;
        if last == Seq::ZERO {
            return Ok(0);
        }
        self.wait_durable()?;
        let stream = self.reader.stream(Start::Oldest);
        let mut stream = stream.map_err(StorageError::from_log)?;
        let (mut copied, mut first, mut count) = (Seq::ZERO, Seq::ZERO, 0);
        while copied < last {
            (self.proceed)()?;
            let batch = stream.try_next().map_err(StorageError::from_log)?;
            let Some(batch) = batch else { return Err(trimmed(self.reader)) };
            let records: Vec<_> = batch
                .iter()
                .take_while(|record| record.seq <= last)
                .map(|record| (record.seq, record.payload))
                .collect();
            let Some(found) = batch.iter().next().filter(|found| found.seq <= last) else {
                return Err(trimmed(self.reader));
            };
            if copied == Seq::ZERO {
                // Cleaning appends again, after the last record, what is alive before this one.
                if found.prev >= self.extent.oldest {
                    return Err(trimmed(self.reader));
                }
                // The first record of the copy may follow any number.
                (first, copied) = (found.seq, found.prev);
            }
            let written = log.write(Append::numbered(copied, &records));
            drop(written.map_err(StorageError::from_log)?);
            copied = records.last().map_or(copied, |(seq, _)| *seq);
            count += records.len() as u64;
        }
        debug_assert_eq!(copied, last, "the copy ends at another record");
        let barrier = log.barrier().map_err(StorageError::from_log)?;
        barrier.blocking_wait().map_err(StorageError::from_log)?;
        log.retention().truncate_before(first).map_err(StorageError::from_log)?;
        Ok(count)
    }

    /// Waits until the records are durable for readers.
    fn wait_durable(&self) -> Result<(), StorageError> {
        for _ in 0..READER_POLLS_MAX {
            self.reader.refresh().map_err(StorageError::from_log)?;
            if durable(self.reader)? >= self.extent.last {
                return Ok(());
            }
            std::thread::sleep(READER_POLL_INTERVAL);
        }
        Err(StorageError::Log(esker_log::Error::Timeout))
    }

    /// Copies a snapshot. Returns why it is not whole, if it is not; then it is not copied.
    fn snapshot(&self, log: &Log, at: u64) -> Result<Option<esker_log::Error>, StorageError> {
        let mut source = match self.reader.snapshots().reader(at) {
            // It was removed, because a newer one is whole.
            Ok(source) => source.ok_or_else(|| trimmed(self.reader))?,
            Err(error) => return corrupt(error).map(Some),
        };
        // Before the first byte is written: a failure after that is one of the copy.
        if let Err(error) = source.verify() {
            return corrupt(error).map(Some);
        }
        let mut writer = log.snapshots().writer(at).map_err(StorageError::from_log)?;
        let copied = writer.copy_from(&mut source);
        let unknown = |_| StorageError::Internal { invariant: "a stream of a log has its errors" };
        copied.map_err(|error| from_stream(error, unknown))?;
        writer.publish(source.note()).map_err(StorageError::from_log)?;
        Ok(None)
    }
}

/// The error that a snapshot is not whole, or else the error of the reader.
fn corrupt(error: impl Into<esker_log::Error>) -> Result<esker_log::Error, StorageError> {
    match error.into() {
        cause @ esker_log::Error::Corrupted(_) => Ok(cause),
        // Too many open files, for instance, say nothing about the snapshot.
        esker_log::Error::Io(cause) if cause.op() == Op::Read => Ok(esker_log::Error::Io(cause)),
        cause => Err(StorageError::from_log(cause)),
    }
}
