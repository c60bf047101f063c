//! Writing a snapshot.

use std::io::{self, Read, Write};

use crate::base::slot::Slot;
use crate::errors::protocol_errors::ReadError;
use crate::errors::snapshot_errors::{CreateSnapshotError, from_stream};
use crate::snapshots::stored::{SNAPSHOT_NOTE_LIMIT, SnapshotInfo, Snapshots, note_of};
use crate::storage_error::StorageError;

/// Writes a snapshot as an [`io::Write`]; from [`Snapshots::writer`]. Takes at most
/// 10 MiB of memory, whatever the length of the state. Appends continue meanwhile.
///
/// Dropping it before [`SnapshotWriter::finish`] changes nothing.
#[derive(Debug)]
pub struct SnapshotWriter {
    slot: Slot,
    writer: esker_log::SnapshotWriter,
}

impl SnapshotWriter {
    /// Writes everything that a source has, without another copy. Returns the number of bytes.
    ///
    /// # Errors
    /// The error of the source, or of the disk.
    pub fn copy_from(&mut self, source: impl Read) -> io::Result<u64> {
        self.writer.copy_from(source)
    }

    /// Publishes the snapshot, in place of the one at the same slot if there is one, with a note of
    /// the application's own of at most [`SNAPSHOT_NOTE_LIMIT`] bytes: it can be read without
    /// reading the state. Blocks.
    ///
    /// # Durability
    /// Durable when it returns. A crash before that leaves what was there.
    ///
    /// # Errors
    /// [`CreateSnapshotError::EntryTooLarge`] for the note; [`CreateSnapshotError::Storage`], with
    /// [`StorageError::Log`] when the state could not be written, for example for want of space:
    /// the log continues.
    pub fn finish(self, note: &[u8]) -> Result<SnapshotInfo, CreateSnapshotError> {
        if note.len() > SNAPSHOT_NOTE_LIMIT {
            let (size, limit) = (note.len() as u64, SNAPSHOT_NOTE_LIMIT as u64);
            return Err(CreateSnapshotError::EntryTooLarge { size, limit });
        }
        let Self { slot, writer } = self;
        let len = writer.len();
        let published = writer.publish(&note_of(slot, note));
        let file_size = published.map_err(StorageError::from_log)?;
        Ok(SnapshotInfo { slot, entries: slot.0 + 1, len, file_size, note: note.to_vec() })
    }
}

impl Write for SnapshotWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Snapshots {
    /// Writes a snapshot of the state machine, after it applied every slot up to this one: as
    /// [`Snapshots::writer`], with the state as a stream and no note. Blocks.
    ///
    /// # Durability
    /// Durable when it returns.
    ///
    /// # Errors
    /// As [`Snapshots::writer`] and [`SnapshotWriter::finish`]; [`CreateSnapshotError::Stream`]
    /// when the state cannot be read.
    pub fn create(
        &self,
        slot: Slot,
        state: impl Read,
    ) -> Result<SnapshotInfo, CreateSnapshotError> {
        let mut writer = self.writer(slot)?;
        let copied = writer.copy_from(state);
        copied.map_err(|error| from_stream(error, CreateSnapshotError::Stream))?;
        writer.finish(&[])
    }

    /// Begins a snapshot of the state machine, after it applied every slot up to this one. The
    /// slots must be durably committed, without a gap: a snapshot represents all of them.
    ///
    /// # Errors
    /// [`CreateSnapshotError::SlotNotFound`] and [`CreateSnapshotError::NotCommitted`] for a slot
    /// that is not committed, and [`CreateSnapshotError::Gap`] when one below it is not;
    /// [`CreateSnapshotError::Truncated`] below the floor; as [`Snapshots::applied_writer`].
    ///
    /// # Examples
    /// ```
    /// use std::io::Write;
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # log.learn(Slot(0), Ballot { number: 1, node: 7 }, b"+1")?.blocking_wait()?;
    /// let mut writer = log.snapshots().writer(Slot(0))?;
    /// writeln!(writer, "the sum is 1")?;
    /// let info = writer.finish(b"version 2")?; // durable
    /// assert_eq!((info.slot, info.entries, info.len), (Slot(0), 1, 13));
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn writer(&self, slot: Slot) -> Result<SnapshotWriter, CreateSnapshotError> {
        self.log.inner.refuse_if_not_writable()?;
        if let Some(floor) = self.log.floor().filter(|floor| slot < *floor) {
            return Err(CreateSnapshotError::Truncated { floor });
        }
        let frontier = self.log.frontier();
        if frontier.is_none_or(|frontier| slot > frontier) {
            self.log.read_committed(slot, &self.log.pin()).map_err(|error| match error {
                ReadError::SlotNotFound { slot } => CreateSnapshotError::SlotNotFound { slot },
                ReadError::NotCommitted { slot } => CreateSnapshotError::NotCommitted { slot },
                ReadError::Truncated { floor } => CreateSnapshotError::Truncated { floor },
                ReadError::Storage(error) => error.into(),
                ReadError::InvalidOffset { .. } => {
                    self.log.inner.broken("a read of a slot names no offset").into()
                }
            })?;
            let slot = frontier.map_or(Slot::ZERO, Slot::next);
            return Err(CreateSnapshotError::Gap { slot });
        }
        self.applied_writer(slot)
    }

    /// As [`Snapshots::writer`], for slots that this log does not know to be committed:
    /// it does not have them, because the state came from another replica, or their commit markers
    /// are not durable yet. The caller vouches that they are committed. Floor and frontier stay;
    /// [`Snapshots::install`] moves them.
    ///
    /// # Errors
    /// [`CreateSnapshotError::SlotOutOfRange`] for the last two slots there are;
    /// [`CreateSnapshotError::Storage`].
    pub fn applied_writer(&self, slot: Slot) -> Result<SnapshotWriter, CreateSnapshotError> {
        self.log.inner.refuse_if_not_writable()?;
        let limit = Slot(u64::MAX - 1);
        if slot >= limit {
            return Err(CreateSnapshotError::SlotOutOfRange { slot, limit });
        }
        let writer = self.log.inner.log.snapshots().writer(slot.0);
        Ok(SnapshotWriter { slot, writer: writer.map_err(StorageError::from_log)? })
    }
}
