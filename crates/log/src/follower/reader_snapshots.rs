//! Snapshots of the application of a log that another process writes.

use super::ReadOnlyLog;
use crate::base::log_error::LogError;
use crate::base::operation_errors::SnapshotError;
use crate::read::snapshot_reader::{self, SnapshotReader};
use crate::store::snapshot_files;

/// The snapshots of the application beside a read-only log. From [`ReadOnlyLog::snapshots`].
#[derive(Debug, Clone, Copy)]
pub struct ReadOnlySnapshots<'a> {
    reader: &'a ReadOnlyLog,
}

impl ReadOnlyLog {
    /// Returns the snapshots of the application, which the writer of the log makes.
    pub fn snapshots(&self) -> ReadOnlySnapshots<'_> {
        ReadOnlySnapshots { reader: self }
    }
}

impl ReadOnlySnapshots<'_> {
    /// Returns the numbers of all snapshots, as [`Snapshots::list`](crate::Snapshots::list) does.
    ///
    /// # Errors
    /// As [`Snapshots::list`](crate::Snapshots::list).
    pub fn list(self) -> Result<Vec<u64>, LogError> {
        self.reader.log.refuse_if_closed()?;
        snapshot_files::list(&*self.reader.log.dir)
            .map_err(|error| LogError::narrow(error, "a directory is listed"))
    }

    /// Opens a snapshot, as [`Snapshots::reader`](crate::Snapshots::reader) does. The writer
    /// may remove it at any time; one that is open here stays readable.
    ///
    /// # Errors
    /// As [`Snapshots::reader`](crate::Snapshots::reader).
    pub fn reader(self, at: u64) -> Result<Option<SnapshotReader>, SnapshotError> {
        self.reader.log.refuse_if_closed()?;
        SnapshotReader::open(&*self.reader.log.dir, at).map_err(SnapshotError::narrow)
    }

    /// Opens the newest snapshot that is valid, after reading all of it; `None` if there is none.
    /// A corrupt snapshot is skipped, with a warning. Blocks for the time of reading it.
    ///
    /// If the writer removes or replaces the snapshot that is being opened, the search starts over.
    /// A snapshot that was returned stays readable. Its record may be after
    /// [`ReadOnlyLog::durable`], which is of the last poll; a stream from there on polls by itself.
    ///
    /// # Durability
    /// The content was synced. A snapshot that the writer is just publishing may have a name that a
    /// power cut removes.
    ///
    /// # Errors
    /// As [`Snapshots::newest`](crate::Snapshots::newest).
    ///
    /// # Examples
    /// ```
    /// use std::io::Read;
    /// use esker_log::{Append, Log, ReadOnlyLog, Seq, Start};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("log");
    /// let writer = Log::open(&dir)?; // often in another process
    /// writer.write(Append::records(&["one", "two"]))?.blocking_wait()?;
    /// writer.snapshots().put(1, &b"the state after record 1"[..])?;
    ///
    /// let reader = ReadOnlyLog::open(&dir)?;
    /// let (mut state, mut after) = (String::new(), Seq(0));
    /// if let Some(mut snapshot) = reader.snapshots().newest()? {
    ///     snapshot.read_to_string(&mut state)?;
    ///     after = Seq(snapshot.at());
    /// }
    /// let mut records = reader.stream(Start::After(after))?;
    /// assert_eq!(records.blocking_next()?.iter().next().unwrap().payload, b"two");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn newest(self) -> Result<Option<SnapshotReader>, SnapshotError> {
        snapshot_reader::newest(|| Ok(self.list()?), |at| self.reader(at))
    }
}
