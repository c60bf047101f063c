//! Snapshots that an application keeps beside its log.

use std::io;

use esker_disk::Op;

use super::snapshot_writer::{IncomingSnapshot, SnapshotWriter};
use crate::base::error::{Error, Result};
use crate::base::log_error::LogError;
use crate::base::operation_errors::SnapshotError;
use crate::base::position::Seq;
use crate::format::BLOCK_BYTES;
use crate::log::Log;
use crate::read::snapshot_reader::{self, SnapshotReader};
use crate::store::{chunked_file, paths, snapshot_files};

/// The snapshots of the application beside an open log. From [`Log::snapshots`].
#[derive(Debug, Clone, Copy)]
pub struct Snapshots<'a> {
    log: &'a Log,
}

impl Log {
    /// Returns the snapshots of the application: its state as of a record, so that the records
    /// before it can be dropped.
    pub fn snapshots(&self) -> Snapshots<'_> {
        Snapshots { log: self }
    }

    /// Changes the names in the directory, unless the log was closed: then the directory may have
    /// another writer. A failure poisons the log, because nothing may be dropped on the strength of
    /// a name that is not durable. A rename that a full directory refuses changes no name.
    pub(super) fn publish_snapshot(&self, publish: impl FnOnce() -> Result<()>) -> Result<()> {
        let _not_closing = self.change_segments()?;
        let outcome = publish();
        if let Err(Error::Io(cause)) = &outcome {
            if cause.op() == Op::Rename && cause.is_no_space() {
                return outcome
                    .map_err(|error| self.for_want_of_space(error, u64::from(BLOCK_BYTES)));
            }
            self.write.fail(Error::Io(cause.clone()));
        }
        outcome
    }
}

impl Snapshots<'_> {
    /// Begins a snapshot of the application's state, after it applied everything up to `at`: a
    /// number of the application's own, such as that of a record. Several may be written at a time.
    ///
    /// # Errors
    /// [`LogError::Closed`].
    ///
    /// # Examples
    /// ```
    /// use std::io::{Read, Write};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// let mut writer = log.snapshots().writer(7)?;
    /// writer.write_all(b"the state after record 7")?;
    /// writer.publish(b"written by version 2")?; // durable
    ///
    /// let mut reader = log.snapshots().reader(7)?.expect("there is one");
    /// reader.verify()?;
    /// let mut state = String::new();
    /// reader.read_to_string(&mut state)?;
    /// assert_eq!((&*state, log.snapshots().list()?), ("the state after record 7", vec![7]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn writer(self, at: u64) -> Result<SnapshotWriter, LogError> {
        self.log.refuse_if_closed()?;
        Ok(SnapshotWriter::new(self.log.clone(), at))
    }

    /// Writes a snapshot of the application's state after it applied everything up to the record
    /// `at`: all that `state` has. Returns the size of the file in bytes. Blocks; takes 10 MiB of
    /// memory.
    ///
    /// # Durability
    /// Durable when it returns. A crash before that leaves what was there before.
    ///
    /// # Errors
    /// [`SnapshotError::NotFound`] for a record that is not durable: a crash would leave a state
    /// ahead of the log. [`LogError::Io`] when `state` fails; otherwise as
    /// [`SnapshotWriter::publish`].
    ///
    /// # Examples
    /// ```
    /// use std::io::Read;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// # log.append("one")?.blocking_wait()?;
    /// log.snapshots().put(1, &b"the state after record 1"[..])?;
    ///
    /// // At the next start: the state, and then the records after it.
    /// let (mut state, mut after) = (String::new(), 0);
    /// if let Some(mut snapshot) = log.snapshots().newest()? {
    ///     snapshot.read_to_string(&mut state)?;
    ///     after = snapshot.at();
    /// }
    /// let records = log.stream(esker_log::Start::From((after + 1).into()))?;
    /// # drop(records);
    /// assert_eq!((&*state, after), ("the state after record 1", 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put(self, at: impl Into<Seq>, state: impl io::Read) -> Result<u64, SnapshotError> {
        let at = at.into();
        if at > self.log.durable() {
            return Err(SnapshotError::NotFound { seq: at });
        }
        let mut writer = self.writer(at.0)?;
        match writer.copy_from(state) {
            Ok(_) => writer.publish(&[]),
            Err(error) => Err(self.failed_to_copy(at, error)),
        }
    }

    /// The error for a state that could not be copied to the snapshot `at`.
    fn failed_to_copy(self, at: Seq, error: io::Error) -> SnapshotError {
        let source = match error.downcast::<Error>() {
            // Of the writer, or of a snapshot that is the source.
            Ok(
                error @ (Error::Io(_)
                | Error::NoSpace { .. }
                | Error::Corrupted(_)
                | Error::Forked
                | Error::Internal { .. }
                | Error::NoThread(_)),
            ) => return SnapshotError::narrow(error),
            // The source may read any log.
            Ok(error) => io::Error::other(error),
            Err(source) => source,
        };
        let path = self.log.write.dir.path_of(&paths::snapshot(at.0));
        LogError::Io(esker_disk::Error::new(Op::Read, &path, None, source)).into()
    }

    /// Opens the newest snapshot that is valid, after reading all of it; `None` if there is none.
    /// A corrupt snapshot is skipped, with a warning. Blocks for the time of reading it.
    ///
    /// # Errors
    /// [`SnapshotError::Busy`] if others are removed and published again and again meanwhile;
    /// [`LogError::Io`], [`LogError::Closed`].
    pub fn newest(self) -> Result<Option<SnapshotReader>, SnapshotError> {
        snapshot_reader::newest(|| Ok(self.list()?), |at| self.reader(at))
    }

    /// Returns the numbers of all snapshots, in ascending order. Reads no file. Waits while one of
    /// them is being published: their names are durable, unless publishing failed and poisoned the
    /// log. An opening syncs the names that a process left when it died.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Closed`].
    pub fn list(self) -> Result<Vec<u64>, LogError> {
        let _not_publishing = self.log.change_segments()?;
        snapshot_files::list(&*self.log.write.dir)
            .map_err(|error| LogError::narrow(error, "a directory is listed"))
    }

    /// Opens the snapshot of this number, and checks its header; `None` if there is none.
    ///
    /// # Errors
    /// [`SnapshotError::Corrupted`], [`LogError::Io`], [`LogError::Closed`].
    pub fn reader(self, at: u64) -> Result<Option<SnapshotReader>, SnapshotError> {
        self.log.refuse_if_closed()?;
        SnapshotReader::open(&*self.log.write.dir, at).map_err(SnapshotError::narrow)
    }

    /// Removes the snapshot of this number, if there is one.
    ///
    /// # Durability
    /// Durable when it returns.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Closed`]; [`LogError::Poisoned`] after a failure: the name of
    /// a newer snapshot may not be durable.
    pub fn remove(self, at: u64) -> Result<(), LogError> {
        let _not_closing = self.log.change_segments()?;
        if let Some(terminal) = self.log.write.lock().core.failure() {
            return Err(terminal.refusal());
        }
        chunked_file::discard(&*self.log.write.dir, &paths::snapshot(at))
            .map_err(|error| LogError::narrow(error, "removing a snapshot reads nothing"))
    }

    /// Continues to receive the snapshot whose header another node sent, or begins to, if `admits`
    /// accepts its number and its note. What was received of another snapshot before is dropped.
    ///
    /// # Errors
    /// [`SnapshotError::Corrupted`] if the header is not valid or not admitted;
    /// [`SnapshotError::Busy`] while another one is being received; [`SnapshotError::NoSpace`],
    /// [`LogError::Io`], [`LogError::Closed`].
    pub fn receive(
        self,
        header: &[u8],
        admits: impl FnOnce(u64, &[u8]) -> bool,
    ) -> Result<IncomingSnapshot, SnapshotError> {
        IncomingSnapshot::new(self.log, header, admits).map_err(SnapshotError::narrow)
    }
}
