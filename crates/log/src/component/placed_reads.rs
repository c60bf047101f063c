//! Reading records whose places an index knows.

use super::component_log::ComponentLog;
use crate::base::error::Result;
use crate::base::log_error::LogError;
use crate::base::operation_errors::ReadError;
use crate::base::position::RecordPlace;
use crate::commit::core::Core;
use crate::read::batch::Payload;
use crate::read::source::Source;
use crate::read::{cursor, placed, placed_many};
use crate::runtime::backoff::Backoff;
use crate::staging::staged::StagedUnit;

/// Whether all appenders of a unit have copied their payloads. No record gets a place in it while
/// the core is locked.
pub(super) fn is_filled(core: &Core, staged: &StagedUnit) -> bool {
    let bytes = staged.records.end - staged.records.start;
    core.written().unit >= staged.unit || core.fill_tracker(staged.unit).complete(bytes).is_some()
}

impl ComponentLog<'_> {
    /// Returns the payload of a record whose place is known, accepted or durable.
    ///
    /// Unless the record is in memory, it reads exactly the blocks of the record, with one read
    /// that is never throttled, and checks the record's checksum. If the place holds another
    /// record, because recovery moved this one, it finds the record by its number.
    ///
    /// # Errors
    /// As [`Log::read`](crate::Log::read). [`ReadError::NotFound`](crate::ReadError::NotFound) also
    /// if the log never accepted this record there.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Log, component::RecordPlace};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let ticket = log.append("a record")?;
    /// let place = RecordPlace { seq: ticket.seq(), position: ticket.position(), len: 8 };
    /// assert_eq!(&*log.component().read_placed(place)?, b"a record"); // accepted
    /// ticket.blocking_wait()?;
    /// assert_eq!(&*log.component().read_placed(place)?, b"a record"); // durable
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn read_placed(self, place: RecordPlace) -> Result<Payload, ReadError> {
        self.log.refuse_if_closed()?;
        let source = &*self.log.read;
        let mut written = source.limit().0;
        if place.position.0 >= written {
            match self.read_staged(place) {
                Ok(payload) => return Ok(payload),
                Err(end) => written = end,
            }
        }
        let found = placed::find(source, place, written);
        found.map_err(|error| ReadError::narrow(cursor::exactly(source, error)))
    }

    /// Returns the payloads of several records whose places are known, where that needs few reads:
    /// records that are near each other are read together, and up to 8 threads read at a time.
    /// `None` for a record that [`ComponentLog::read_placed`] has to read: it is in memory only, or
    /// at another place, or its read failed.
    ///
    /// Payloads that were read together keep the memory of one read, up to 256 KiB.
    ///
    /// # Errors
    /// [`LogError::Closed`](crate::LogError::Closed).
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Log, component::RecordPlace};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let tickets = [log.append("first")?, log.append("other")?];
    /// log.barrier()?.blocking_wait()?;
    /// let places = tickets.map(|t| RecordPlace { seq: t.seq(), position: t.position(), len: 5 });
    /// let found = log.component().read_placed_many(&places)?;
    /// assert_eq!(found[1].as_deref(), Some(&b"other"[..]));
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn read_placed_many(
        self,
        places: &[RecordPlace],
    ) -> Result<Vec<Option<Payload>>, LogError> {
        self.log.refuse_if_closed()?;
        let source = &*self.log.read;
        let parallel = !self.log.write.engine.is_manual();
        Ok(placed_many::find(source, places, source.limit().0, parallel))
    }

    /// The record at this place, if it is staged. Otherwise the position up to which everything is
    /// written to the files.
    fn read_staged(self, place: RecordPlace) -> std::result::Result<Payload, u64> {
        self.once_filled(|core| {
            let found = core.staged().find(|staged| {
                let offset = place.position.0.checked_sub(staged.buffer.base);
                offset.is_some_and(|offset| {
                    let records = u64::from(staged.records.start)..u64::from(staged.records.end);
                    records.contains(&offset)
                })
            });
            let Some(staged) = found else { return Some(Err(core.released().position)) };
            let filled = is_filled(core, &staged);
            let payload = || placed::of_staged(&staged, place).ok_or(core.released().position);
            filled.then(payload)
        })
    }

    /// Waits until `check` finds the units that it needs filled. It holds the lock for the time of
    /// a copy. An appender that updates a large index takes longer, and then the lock is free.
    pub(super) fn once_filled<T>(self, mut check: impl FnMut(&Core) -> Option<T>) -> T {
        let mut backoff = Backoff::default();
        loop {
            let state = self.log.write.lock();
            loop {
                if let Some(found) = check(&state.core) {
                    return found;
                }
                if !backoff.spin() {
                    break;
                }
            }
            drop(state);
            backoff.sleep();
        }
    }
}
