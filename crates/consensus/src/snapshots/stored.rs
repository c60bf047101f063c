//! Finding snapshots that are whole.

use std::io;
use std::path::Path;
use std::sync::Arc;

use esker_disk::{Disk, StdDisk};
use esker_log::{Log, ReadOnlyLog, ReadOptions, SnapshotReader};

use crate::base::slot::Slot;
use crate::component;
use crate::errors::manager_errors::OpenError;
use crate::errors::snapshot_errors::SnapshotError;
use crate::snapshots::transfer_thread::has_threads;
use crate::state::inner::ConsensusLog;
use crate::storage_error::StorageError;

/// Bytes of the note before the application's own: the number of entries.
const ENTRY_COUNT_BYTES: usize = 8;
/// The most bytes of the application's note on a snapshot.
pub const SNAPSHOT_NOTE_LIMIT: usize = 1024;

/// Encodes the note of a snapshot's file.
pub(super) fn note_of(slot: Slot, note: &[u8]) -> Vec<u8> {
    [&entries(slot).to_le_bytes(), note].concat()
}

/// The number of entries, and the application's note; `None` for that of another file.
pub(super) fn parse_note(slot: Slot, note: &[u8]) -> Option<(u64, &[u8])> {
    let (count, note) = note.split_first_chunk::<ENTRY_COUNT_BYTES>()?;
    let count = u64::from_le_bytes(*count);
    (count == entries(slot) && note.len() <= SNAPSHOT_NOTE_LIMIT).then_some((count, note))
}

/// The entries of the log that a snapshot at this slot has the effect of.
fn entries(slot: Slot) -> u64 {
    slot.0.saturating_add(1)
}

/// The header of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// The state machine had applied every slot up to this one.
    pub slot: Slot,
    /// The number of these slots.
    pub entries: u64,
    /// The length of the state in bytes.
    pub len: u64,
    /// The size of the file in bytes.
    pub file_size: u64,
    /// The application's note.
    pub note: Vec<u8>,
}

/// A snapshot that was read and is whole, to be read as an [`io::Read`]: the state, from its
/// first byte.
///
/// It stays readable when [`Snapshots::keep`] removes it. Each chunk
/// of 2 MiB is checked again before its first byte is returned. Takes 2 MiB of memory.
#[derive(Debug)]
pub struct Snapshot {
    info: SnapshotInfo,
    pub(super) reader: SnapshotReader,
    /// Whether a transfer may start a thread.
    pub(super) has_threads: bool,
    skipped: Vec<SnapshotError>,
}

impl Snapshot {
    /// The slot up to which the state machine had applied.
    pub fn slot(&self) -> Slot {
        self.info.slot
    }

    /// The header.
    pub fn info(&self) -> &SnapshotInfo {
        &self.info
    }

    /// The newer snapshots that are not whole, from the newest on, as
    /// [`SnapshotError::CorruptedSnapshot`].
    pub fn skipped(&self) -> &[SnapshotError] {
        &self.skipped
    }
}

impl io::Read for Snapshot {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.reader.read(out)
    }
}

/// The snapshots of an open log, beside it; from [`ConsensusLog::snapshots`]. Cheap to clone, and a
/// handle to the log: it can be moved to a thread that may block.
///
/// All calls block on the disk, but for [`Snapshots::receive`] and [`Snapshots::install`].
#[derive(Debug, Clone)]
pub struct Snapshots {
    pub(super) log: ConsensusLog,
}

/// The snapshots of a log in a directory, read without its lock and beside its writer.
///
/// All calls block on the disk.
#[derive(Debug, Clone)]
pub struct ReadOnlySnapshots {
    files: SnapshotFiles,
}

/// The files of snapshots, as a writer or a reader of the log finds them.
#[derive(Debug, Clone)]
pub(super) enum SnapshotFiles {
    Log(Log),
    ReadOnly(Arc<ReadOnlyLog>),
}

impl ConsensusLog {
    /// The snapshots of this log.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # log.learn(Slot(0), Ballot { number: 1, node: 7 }, b"+1")?.blocking_wait()?;
    /// log.snapshots().create(Slot(0), &b"the sum is 1"[..])?;
    /// let mut latest = log.snapshots().latest()?;
    /// assert_eq!(latest.slot(), Slot(0));
    /// assert_eq!(std::io::read_to_string(&mut latest)?, "the sum is 1");
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn snapshots(&self) -> Snapshots {
        Snapshots { log: self.clone() }
    }
}

impl Snapshots {
    pub(super) fn files(&self) -> SnapshotFiles {
        SnapshotFiles::Log(self.log.inner.log.clone())
    }

    /// Returns the slots of all snapshots, whole or not, in ascending order.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn list(&self) -> Result<Vec<Slot>, StorageError> {
        self.files().list()
    }

    /// Reads the header of the snapshot at this slot. Does not say whether the rest is whole.
    ///
    /// # Errors
    /// [`SnapshotError::NoSnapshot`], [`SnapshotError::CorruptedSnapshot`],
    /// [`SnapshotError::Storage`].
    pub fn info(&self, slot: Slot) -> Result<SnapshotInfo, SnapshotError> {
        self.files().info(slot)
    }

    /// Reads the snapshot at this slot, and checks every byte of it.
    ///
    /// # Errors
    /// As [`Snapshots::info`].
    pub fn verify(&self, slot: Slot) -> Result<Snapshot, SnapshotError> {
        self.files().verify(slot)
    }

    /// Returns the newest snapshot that is whole. Reads it to find out, and before it those that
    /// are not: see [`Snapshot::skipped`].
    ///
    /// # Errors
    /// [`SnapshotError::NoSnapshot`] if there is none; [`SnapshotError::CorruptedSnapshot`], of the
    /// newest, if none is whole; [`SnapshotError::Storage`].
    pub fn latest(&self) -> Result<Snapshot, SnapshotError> {
        self.files().newest(|_| true)
    }

    /// Returns the newest snapshot at or before this slot that is whole.
    ///
    /// # Errors
    /// As [`Snapshots::latest`].
    pub fn at_or_before(&self, slot: Slot) -> Result<Snapshot, SnapshotError> {
        self.files().newest(|at| at <= slot)
    }
}

impl ReadOnlySnapshots {
    /// Opens the snapshots of the log in `dir` to read them.
    ///
    /// # Errors
    /// [`OpenError::UnfinishedBackup`]; [`OpenError::Storage`] with [`StorageError::Log`] if there
    /// is no log, or one of another component.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(StdDisk::new()), dir)
    }

    /// As [`ReadOnlySnapshots::open`], on `disk`.
    ///
    /// # Errors
    /// As [`ReadOnlySnapshots::open`].
    pub fn open_on(disk: Arc<dyn Disk>, dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        let reader = component::open_known(dir.as_ref(), ReadOptions::on(disk))?;
        Ok(Self { files: SnapshotFiles::ReadOnly(Arc::new(reader)) })
    }

    /// As [`Snapshots::list`].
    ///
    /// # Errors
    /// As [`Snapshots::list`].
    pub fn list(&self) -> Result<Vec<Slot>, StorageError> {
        self.files.list()
    }

    /// As [`Snapshots::info`].
    ///
    /// # Errors
    /// As [`Snapshots::info`].
    pub fn info(&self, slot: Slot) -> Result<SnapshotInfo, SnapshotError> {
        self.files.info(slot)
    }

    /// As [`Snapshots::verify`].
    ///
    /// # Errors
    /// As [`Snapshots::verify`].
    pub fn verify(&self, slot: Slot) -> Result<Snapshot, SnapshotError> {
        self.files.verify(slot)
    }

    /// As [`Snapshots::latest`].
    ///
    /// # Errors
    /// As [`Snapshots::latest`].
    pub fn latest(&self) -> Result<Snapshot, SnapshotError> {
        self.files.newest(|_| true)
    }

    /// As [`Snapshots::at_or_before`].
    ///
    /// # Errors
    /// As [`Snapshots::at_or_before`].
    pub fn at_or_before(&self, slot: Slot) -> Result<Snapshot, SnapshotError> {
        self.files.newest(|at| at <= slot)
    }
}

impl SnapshotFiles {
    /// The slots of all snapshots, whole or not, in ascending order.
    pub(super) fn list(&self) -> Result<Vec<Slot>, StorageError> {
        let all = match self {
            Self::Log(log) => log.snapshots().list(),
            Self::ReadOnly(log) => log.snapshots().list(),
        };
        let all = all.map_err(StorageError::from_log)?;
        debug_assert!(all.is_sorted(), "snapshots are not in the order of their slots");
        Ok(all.into_iter().map(Slot).collect())
    }

    fn info(&self, slot: Slot) -> Result<SnapshotInfo, SnapshotError> {
        self.open_at(slot)?.map(|(info, _)| info).ok_or(SnapshotError::NoSnapshot)
    }

    fn verify(&self, slot: Slot) -> Result<Snapshot, SnapshotError> {
        self.whole(slot)?.ok_or(SnapshotError::NoSnapshot)
    }

    /// The newest whole snapshot whose slot is wanted.
    pub(super) fn newest(&self, wanted: impl Fn(Slot) -> bool) -> Result<Snapshot, SnapshotError> {
        let mut skipped = Vec::new();
        for slot in self.list()?.into_iter().rev().filter(|slot| wanted(*slot)) {
            match self.whole(slot) {
                Ok(Some(snapshot)) => return Ok(Snapshot { skipped, ..snapshot }),
                // It was removed meanwhile, because newer ones are whole.
                Ok(None) => {}
                Err(error @ SnapshotError::CorruptedSnapshot { .. }) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "a snapshot is passed over"
                    );
                    skipped.push(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(skipped.into_iter().next().unwrap_or(SnapshotError::NoSnapshot))
    }

    /// Reads the whole snapshot at this slot; `None` if there is none.
    pub(super) fn whole(&self, slot: Slot) -> Result<Option<Snapshot>, SnapshotError> {
        let Some((info, mut reader)) = self.open_at(slot)? else { return Ok(None) };
        reader.verify().map_err(|cause| unusable(slot, cause))?;
        let has_threads = match self {
            Self::Log(log) => has_threads(log),
            Self::ReadOnly(_) => true,
        };
        Ok(Some(Snapshot { info, reader, has_threads, skipped: Vec::new() }))
    }

    fn open_at(&self, slot: Slot) -> Result<Option<(SnapshotInfo, SnapshotReader)>, SnapshotError> {
        let opened = match self {
            Self::Log(log) => log.snapshots().reader(slot.0),
            Self::ReadOnly(log) => log.snapshots().reader(slot.0),
        };
        let Some(reader) = opened.map_err(|cause| unusable(slot, cause))? else { return Ok(None) };
        let Some((entries, note)) = parse_note(slot, reader.note()) else {
            return Err(unusable(slot, reader.invalid("its number of entries is not its slot's")));
        };
        let (len, file_size, note) = (reader.len(), reader.file_size(), note.to_vec());
        Ok(Some((SnapshotInfo { slot, entries, len, file_size, note }, reader)))
    }
}

/// The error for a snapshot that cannot be used. A block that cannot be read counts as one whose
/// checksum does not match.
fn unusable(slot: Slot, cause: impl Into<esker_log::Error>) -> SnapshotError {
    match cause.into() {
        cause @ (esker_log::Error::Corrupted(_) | esker_log::Error::Io(_)) => {
            SnapshotError::CorruptedSnapshot { slot, cause }
        }
        cause => StorageError::from_log(cause).into(),
    }
}
