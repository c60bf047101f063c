//! Snapshots of the application of a log that another process writes.

use super::ReadOnlyLog;
use crate::base::error::Result;
use crate::read::snapshot::{self, SnapshotReader};
use crate::store::snapshot_files;

impl ReadOnlyLog {
    /// Returns the numbers of all snapshots, as [`Log::snapshots`](crate::Log::snapshots) does.
    ///
    /// # Errors
    /// As [`Log::snapshots`](crate::Log::snapshots).
    pub fn snapshots(&self) -> Result<Vec<u64>> {
        self.log.refuse_if_closed()?;
        snapshot_files::list(&*self.log.dir)
    }

    /// Opens a snapshot, as [`Log::snapshot_reader`](crate::Log::snapshot_reader) does. The writer
    /// may remove it at any time; one that is open here stays readable.
    ///
    /// # Errors
    /// As [`Log::snapshot_reader`](crate::Log::snapshot_reader).
    pub fn snapshot_reader(&self, at: u64) -> Result<Option<SnapshotReader>> {
        self.log.refuse_if_closed()?;
        SnapshotReader::open(&*self.log.dir, at)
    }

    /// Opens the newest snapshot that is valid, after reading all of it; `None` if there is none.
    /// One that is corrupt is passed over, with a warning. Blocks for the time of reading it.
    ///
    /// If the writer removes or replaces the snapshot that is being opened, the search starts over.
    /// One that was returned stays readable. Its record may be after [`ReadOnlyLog::durable`],
    /// which is of the last poll; a stream from there on polls by itself.
    ///
    /// # Durability
    /// The content was synced. A snapshot that the writer is just publishing may have a name that a
    /// power cut removes.
    ///
    /// # Errors
    /// As [`Log::newest_snapshot`](crate::Log::newest_snapshot).
    ///
    /// # Examples
    /// ```
    /// use std::io::Read;
    /// use esker_log::{Append, Log, ReadOnlyLog, Seq, Start};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("log");
    /// let writer = Log::open(&dir)?; // often in another process
    /// writer.write(Append::records(&["one", "two"]))?.blocking_wait()?;
    /// writer.put_snapshot(1, &b"the state after record 1"[..])?;
    ///
    /// let reader = ReadOnlyLog::open(&dir)?;
    /// let (mut state, mut after) = (String::new(), Seq(0));
    /// if let Some(mut snapshot) = reader.newest_snapshot()? {
    ///     snapshot.read_to_string(&mut state)?;
    ///     after = Seq(snapshot.at());
    /// }
    /// let mut records = reader.stream(Start::After(after))?;
    /// assert_eq!(records.blocking_next()?.iter().next().unwrap().payload, b"two");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn newest_snapshot(&self) -> Result<Option<SnapshotReader>> {
        snapshot::newest(|| self.snapshots(), |at| self.snapshot_reader(at))
    }
}
