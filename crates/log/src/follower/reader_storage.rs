//! The files of a log that another process writes.

use super::ReadOnlyLog;
use super::poller::{Depth, PolledLog};
use crate::base::error::{Corruption, Error, Result};
use crate::base::log_error::LogError;
use crate::base::operation_errors::ReadError;
use crate::read::metadata::{Metadata, SegmentInfo, Stored};
use crate::read::source::Source;
use crate::store::directory;

/// The files of a read-only log, and copies of them. From [`ReadOnlyLog::storage`].
#[derive(Debug, Clone, Copy)]
pub struct ReadOnlyStorage<'a> {
    pub(crate) reader: &'a ReadOnlyLog,
}

impl ReadOnlyLog {
    /// Returns what the log has on disk, as of the last poll, and copies of it.
    pub fn storage(&self) -> ReadOnlyStorage<'_> {
        ReadOnlyStorage { reader: self }
    }
}

impl ReadOnlyStorage<'_> {
    /// Returns whether corrupt units of this log were ever quarantined; see
    /// [`Storage::was_repaired`](crate::Storage::was_repaired). Reads from the disk.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn was_repaired(self) -> Result<bool, LogError> {
        let was_repaired = directory::was_repaired(&*self.reader.log.dir);
        was_repaired.map_err(|error| LogError::narrow(error, "a directory is listed"))
    }

    /// Returns the number of valid-looking bytes after the last durable record, which only recovery
    /// may classify. With a concurrent writer these are its latest commits.
    pub fn unrecovered_bytes(self) -> u64 {
        self.reader.log.snapshot().unrecovered
    }

    /// Returns the first corruption that the directory scan met, if any. The scan does not read
    /// segments that have a valid footer; [`verify`](crate::verify) reads everything.
    pub fn corruption(self) -> Option<Corruption> {
        self.reader.log.snapshot().corruption.clone()
    }

    /// Returns the segments that hold durable records, oldest first, with what was counted in them
    /// at the last scan, as for [`ReadOnlyStorage::metadata`]. No I/O.
    pub fn segments(self) -> Vec<SegmentInfo> {
        let snapshot = self.reader.log.snapshot();
        SegmentInfo::list(snapshot.segments(), snapshot.limit().1)
    }

    /// Returns what the log stores, as of the last poll. No I/O.
    ///
    /// A poll that finds more records in the newest segment does not read them. The counts
    /// (records, bytes, entries of the index) are those of the last scan of the directory, at
    /// opening or when the writer began a segment or a session; [`ReadOnlyStorage::stored`] reads
    /// them.
    pub fn metadata(self) -> Metadata {
        let snapshot = self.reader.log.snapshot();
        let manifest = snapshot.manifest();
        Metadata::new(&*snapshot, manifest.log, manifest.session, snapshot.cached_bytes())
    }

    /// Returns what is stored. Reads the newest segment where the last poll found more in it than
    /// was counted, the dropped part of the oldest segment, to count its records, and the headers
    /// of units in segments that may have a gap.
    ///
    /// # Errors
    /// [`ReadError::Corrupted`] where such a header is corrupt, [`LogError::Io`],
    /// [`LogError::Closed`].
    pub fn stored(self) -> Result<Stored, ReadError> {
        self.count().map_err(ReadError::narrow)
    }

    fn count(self) -> Result<Stored> {
        self.reader.log.refuse_if_closed()?;
        let snapshot = self.reader.log.snapshot();
        let newest = snapshot.segments().all().pop();
        if newest.is_none_or(|newest| newest.state.read().last_seq < snapshot.limit().1) {
            self.reader.log.poll(Depth::Rescan)?;
        }
        match Stored::new(&*self.reader.log.snapshot()) {
            Err(Error::Corrupted(_)) => {
                // As in `read`.
                self.reader.log.poll(Depth::Rescan)?;
                Stored::new(&*self.reader.log.snapshot())
            }
            other => other,
        }
    }

    /// Returns whether the log was closed cleanly as of the last poll.
    pub fn is_closed_cleanly(self) -> bool {
        self.reader.log.snapshot().manifest().clean.is_some()
    }
}
