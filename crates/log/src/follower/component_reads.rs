//! Reads of a component in a log that another process writes.

use super::ReadOnlyLog;
use super::poller::{Depth, PolledLog};
use super::scan_snapshot::Snapshot;
use crate::base::component::Component;
use crate::base::error::{Error, Result};
use crate::base::log_error::LogError;
use crate::base::operation_errors::{OpenError, ReadError};
use crate::base::position::RecordPlace;
use crate::read::batch::Payload;
use crate::read::checkpoint_reader::CheckpointReader;
use crate::read::source::Source;
use crate::read::{cursor, placed, placed_many};
use crate::store::app_metadata;

/// The methods of a read-only log that the author of a component needs. From
/// [`ReadOnlyLog::component`]; see the module [`component`](crate::component).
#[derive(Debug, Clone, Copy)]
pub struct ReadOnlyComponentLog<'a> {
    reader: &'a ReadOnlyLog,
}

impl ReadOnlyLog {
    /// Returns the methods for the author of a component; see the module
    /// [`component`](crate::component), which says who needs them.
    #[inline]
    pub fn component(&self) -> ReadOnlyComponentLog<'_> {
        ReadOnlyComponentLog { reader: self }
    }
}

impl ReadOnlyComponentLog<'_> {
    /// Returns the payload of a record whose place is known, durable as of the last poll.
    ///
    /// It reads exactly the blocks of the record, with one read, and checks the record's checksum.
    /// If the place holds another record, because recovery moved this one, it finds the record by
    /// its number.
    ///
    /// # Errors
    /// As [`ComponentLog::read_placed`](crate::component::ComponentLog::read_placed), with
    /// [`ReadError::Trimmed`] for a record that the writer dropped. A dropped record may still be
    /// returned for some time, also after a poll: a poll that finds more durable records does not
    /// look for the trim point, and a segment that is open here can be read until the writer uses
    /// its file again.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Log, ReadOnlyLog, component::RecordPlace};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("log");
    /// let writer = Log::open(&dir)?; // often in another process
    /// let ticket = writer.append("a record")?;
    /// let place = RecordPlace { seq: ticket.seq(), position: ticket.position(), len: 8 };
    /// ticket.blocking_wait()?;
    /// let reader = ReadOnlyLog::open(&dir)?;
    /// assert_eq!(&*reader.component().read_placed(place)?, b"a record");
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn read_placed(self, place: RecordPlace) -> Result<Payload, ReadError> {
        self.find_placed(place).map_err(ReadError::narrow)
    }

    fn find_placed(self, place: RecordPlace) -> Result<Payload> {
        self.reader.log.refuse_if_closed()?;
        let find = |snapshot: &Snapshot| placed::find(snapshot, place, snapshot.limit().0);
        match find(&self.reader.log.snapshot()) {
            Err(Error::Corrupted(_) | Error::Trimmed(_)) => {
                // As in `read`.
                self.reader.log.poll(Depth::Rescan)?;
                let snapshot = self.reader.log.snapshot();
                find(&snapshot).map_err(|error| cursor::exactly(&*snapshot, error))
            }
            other => other,
        }
    }

    /// Returns the payloads of several records whose places are known, as
    /// [`ComponentLog::read_placed_many`](crate::component::ComponentLog::read_placed_many) does.
    ///
    /// # Errors
    /// [`LogError::Closed`].
    pub fn read_placed_many(
        self,
        places: &[RecordPlace],
    ) -> Result<Vec<Option<Payload>>, LogError> {
        self.reader.log.refuse_if_closed()?;
        let snapshot = self.reader.log.snapshot();
        let parallel = !self.reader.log.engine.is_manual();
        Ok(placed_many::find(&*snapshot, places, snapshot.limit().0, parallel))
    }

    /// Opens the checkpoint; `None` if there is none.
    ///
    /// # Errors
    /// As [`ComponentLog::checkpoint_reader`](crate::component::ComponentLog::checkpoint_reader).
    pub fn checkpoint_reader(self) -> Result<Option<CheckpointReader>, ReadError> {
        self.reader.log.refuse_if_closed()?;
        let log = self.reader.log.snapshot().manifest().log;
        CheckpointReader::open(&*self.reader.log.dir, log, || {
            // It was made from what was durable when it was published, which may be a moment ago.
            self.reader.refresh()?;
            Ok(self.reader.log.snapshot() as _)
        })
        .map_err(ReadError::narrow)
    }

    /// Returns the component that the log belongs to; `None` for a plain log. Reads from the disk.
    ///
    /// # Errors
    /// [`OpenError::Corrupted`] where the app metadata is corrupt,
    /// [`OpenError::UnsupportedVersion`], [`LogError::Io`].
    pub fn id(self) -> Result<Option<Component>, OpenError> {
        let read = app_metadata::read(&*self.reader.log.dir).map_err(OpenError::narrow)?;
        Ok(read.map(|(component, _)| component))
    }

    /// Checks that the log belongs to this component. If the app metadata are corrupt, a warning is
    /// logged and it does: they are optional for a component.
    ///
    /// # Errors
    /// [`OpenError::WrongComponent`], also if the file of the app metadata is lost;
    /// [`OpenError::UnsupportedVersion`], [`LogError::Io`].
    pub fn expect(self, component: Component) -> Result<(), OpenError> {
        let expected = Some(component);
        let found =
            app_metadata::owner(&*self.reader.log.dir, expected).map_err(OpenError::narrow)?;
        if found != expected {
            let dir = self.reader.log.dir.path().into();
            return Err(OpenError::WrongComponent { dir, found, expected });
        }
        Ok(())
    }
}
