//! Appending under a lock of the caller, for components that keep an index of the log.

use super::component_log::ComponentLog;
use crate::base::operation_errors::AppendError;
use crate::base::position::RecordPlace;
use crate::base::purpose::Purpose;
use crate::commit::core::Refusal;
use crate::commit::write_half::WriteHalf;
use crate::write::input::{Append, Input};
use crate::write::ticket::Ticket;

impl ComponentLog<'_> {
    /// Runs `attempt` until it returns anything but a refusal for want of room. Blocks between, as
    /// [`Log::append`](crate::Log::append) does.
    ///
    /// The closure takes the component's lock, decides, and appends at most once: the index has to
    /// apply records in the order of the log, and before a reader can find them durable. It does
    /// not wait. If there is no room, the append in it returns [`AppendRefusal`]; the closure
    /// returns that after releasing its lock, this method waits for room, and runs the closure
    /// again.
    ///
    /// # Errors
    /// As [`Log::append`](crate::Log::append), and the errors that `attempt` converts to
    /// [`AppendRefusal`].
    ///
    /// # Examples
    /// ```
    /// # use std::{collections::HashMap, sync::Mutex};
    /// # use esker_log::component::Purpose;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// let index = Mutex::new(HashMap::new());
    /// let ticket = log.component().append_locked(|log| {
    ///     let mut index = index.lock().unwrap();
    ///     log.append(Purpose::Ordinary, "key=value", |place| drop(index.insert("key", place)))
    /// })?;
    /// ticket.blocking_wait()?;
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn append_locked<T>(
        self,
        mut attempt: impl FnMut(&LockedAppender<'_>) -> Result<T, AppendRefusal>,
    ) -> Result<T, AppendError> {
        let write = &*self.log.write;
        write.with_room(None, || attempt(&LockedAppender { write }).map_err(|refusal| refusal.0))
    }

    /// As [`ComponentLog::append_locked`], but waits for room as a pending future instead of
    /// blocking.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has not run `attempt` successfully.
    ///
    /// # Errors
    /// As [`ComponentLog::append_locked`].
    pub async fn append_locked_async<T>(
        self,
        mut attempt: impl FnMut(&LockedAppender<'_>) -> Result<T, AppendRefusal>,
    ) -> Result<T, AppendError> {
        let write = &*self.log.write;
        write
            .with_room_async(|| attempt(&LockedAppender { write }).map_err(|refusal| refusal.0))
            .await
    }

    /// As [`ComponentLog::append_locked`], but runs `attempt` without waiting.
    ///
    /// # Errors
    /// As [`ComponentLog::append_locked`], and [`AppendError::Full`] when it would have to wait.
    pub fn try_append_locked<T>(
        self,
        mut attempt: impl FnMut(&LockedAppender<'_>) -> Result<T, AppendRefusal>,
    ) -> Result<T, AppendError> {
        let write = &*self.log.write;
        write.without_waiting(|| attempt(&LockedAppender { write }).map_err(|refusal| refusal.0))
    }
}

/// The reason why a [`LockedAppender`] appended nothing: no room, or an error. Return it from the
/// closure after releasing every lock.
#[derive(Debug)]
pub struct AppendRefusal(Refusal);

impl From<AppendError> for AppendRefusal {
    fn from(error: AppendError) -> Self {
        Self(Refusal::Error(error))
    }
}

/// Appends without waiting, inside [`ComponentLog::append_locked`].
#[derive(Debug)]
pub struct LockedAppender<'a> {
    write: &'a WriteHalf,
}

impl LockedAppender<'_> {
    /// Appends a record for this purpose. Never blocks.
    ///
    /// `placed` is called once, with the place of the record, before the record can become durable:
    /// a caller that reads the durable record also sees what `placed` changed. Commits wait
    /// meanwhile, so it must be short, and must neither call the log nor wait for a thread that
    /// does.
    ///
    /// # Errors
    /// [`AppendRefusal`]: nothing was accepted, and `placed` was not called.
    #[inline]
    pub fn append(
        &self,
        purpose: Purpose,
        payload: impl AsRef<[u8]>,
        placed: impl FnOnce(RecordPlace),
    ) -> Result<Ticket, AppendRefusal> {
        let record = Input::next(&payload);
        let accepted = self.write.accept_then(record, purpose, placed).map_err(AppendRefusal)?;
        Ok(self.write.ticket(accepted))
    }

    /// Appends records atomically; see [`Append::atomic`]. `placed` is called once, with the place
    /// of each record in order, as for [`LockedAppender::append`]. Never blocks. Without records it
    /// appends nothing and returns `None`.
    ///
    /// # Errors
    /// As [`LockedAppender::append`].
    pub fn append_atomic<P: AsRef<[u8]>>(
        &self,
        payloads: &[P],
        placed: impl FnOnce(&[RecordPlace]),
    ) -> Result<Option<Ticket>, AppendRefusal> {
        let mut places = Vec::with_capacity(payloads.len());
        let each = |place| places.push(place);
        let records = Append::records(payloads).inputs();
        let guard = self.write.accept_whole_then(&records, each).map_err(AppendRefusal)?;
        Ok(guard.map(|last| {
            placed(&places);
            self.write.ticket(last.release())
        }))
    }
}
