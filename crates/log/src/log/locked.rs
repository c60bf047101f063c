//! Appending under a lock of the caller, for components that keep an index of the log.

use crate::base::error::{Error, Result};
use crate::base::position::Place;
use crate::commit::core::{AppendKind, CopySpace, Refusal};
use crate::commit::write_half::WriteHalf;
use crate::log::Log;
use crate::write::input::{Append, Input};
use crate::write::ticket::Ticket;

/// # Appending under a lock of the caller
///
/// A component with an index must apply records to the index in the order of the log, and before
/// a reader can find them durable. So it appends under a lock, must not wait under it, and
/// updates the index while its record has a place but is not committed. These methods run a closure
/// that takes the lock, decides and appends at most once. If the log has no room, the closure
/// returns [`Refused`] after releasing its lock; the method waits for room and runs the closure
/// again.
impl Log {
    /// Runs `attempt` until it returns anything but a refusal for want of room. Blocks between, as
    /// [`Log::append`] does.
    ///
    /// # Errors
    /// As [`Log::append`], and the errors that `attempt` converts to [`Refused`].
    ///
    /// # Examples
    /// ```
    /// # use std::{collections::HashMap, sync::Mutex};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// let index = Mutex::new(HashMap::new());
    /// let ticket = log.append_locked(|log| {
    ///     let mut index = index.lock().unwrap();
    ///     log.append("key=value", |place| drop(index.insert("key", place)))
    /// })?;
    /// ticket.blocking_wait()?;
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn append_locked<T>(
        &self,
        mut attempt: impl FnMut(&Attempt<'_>) -> std::result::Result<T, Refused>,
    ) -> Result<T> {
        let write = &*self.write;
        write.with_room(None, || attempt(&Attempt { write }).map_err(|refused| refused.0))
    }

    /// As [`Log::append_locked`], but waits for room as a pending future instead of blocking.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has not run `attempt` successfully.
    ///
    /// # Errors
    /// As [`Log::append_locked`].
    pub async fn append_locked_async<T>(
        &self,
        mut attempt: impl FnMut(&Attempt<'_>) -> std::result::Result<T, Refused>,
    ) -> Result<T> {
        let write = &*self.write;
        write.with_room_async(|| attempt(&Attempt { write }).map_err(|refused| refused.0)).await
    }

    /// As [`Log::append_locked`], but runs `attempt` without waiting.
    ///
    /// # Errors
    /// As [`Log::append_locked`], and [`Error::Full`] when it would have to wait.
    pub fn try_append_locked<T>(
        &self,
        mut attempt: impl FnMut(&Attempt<'_>) -> std::result::Result<T, Refused>,
    ) -> Result<T> {
        let write = &*self.write;
        write.without_waiting(|| attempt(&Attempt { write }).map_err(|refused| refused.0))
    }
}

/// The reason why an [`Attempt`] appended nothing: no room, or an error. Return it from the closure
/// after releasing every lock.
#[derive(Debug)]
pub struct Refused(Refusal);

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(Refusal::Error(error))
    }
}

/// Appends without waiting, inside [`Log::append_locked`].
#[derive(Debug)]
pub struct Attempt<'a> {
    write: &'a WriteHalf,
}

impl Attempt<'_> {
    /// Appends a record; see [`Log::append`]. Never blocks.
    ///
    /// `placed` is called once, with the place of the record, before the record can become durable:
    /// a caller that reads the durable record also sees what `placed` changed. Commits wait
    /// meanwhile, so it must be short, and must neither call the log nor wait for a thread that
    /// does.
    ///
    /// # Errors
    /// [`Refused`]: nothing was accepted, and `placed` was not called.
    #[inline]
    pub fn append(
        &self,
        payload: impl AsRef<[u8]>,
        placed: impl FnOnce(Place),
    ) -> std::result::Result<Ticket, Refused> {
        self.accept(payload.as_ref(), AppendKind::Ordinary, placed)
    }

    /// As [`Attempt::append`], of a record that may use the reserve; see [`Log::append_internal`].
    ///
    /// # Errors
    /// As [`Attempt::append`].
    pub fn append_internal(
        &self,
        payload: impl AsRef<[u8]>,
        placed: impl FnOnce(Place),
    ) -> std::result::Result<Ticket, Refused> {
        self.accept(payload.as_ref(), AppendKind::Internal, placed)
    }

    /// As [`Attempt::append`], of a copy of a live record; see [`Log::append_copy`].
    ///
    /// # Errors
    /// As [`Attempt::append`].
    pub fn append_copy(
        &self,
        payload: impl AsRef<[u8]>,
        space: CopySpace,
        placed: impl FnOnce(Place),
    ) -> std::result::Result<Ticket, Refused> {
        self.accept(payload.as_ref(), AppendKind::Copy(space), placed)
    }

    /// As [`Attempt::append`], of a record that frees no space by itself, but lets the component
    /// free some, such as a delete. It may use a quarter of what the reserve has for internal
    /// appends, at most 8 MiB, and leaves the rest to [`Attempt::append_internal`].
    ///
    /// # Errors
    /// As [`Attempt::append`].
    pub fn append_freeing(
        &self,
        payload: impl AsRef<[u8]>,
        placed: impl FnOnce(Place),
    ) -> std::result::Result<Ticket, Refused> {
        self.accept(payload.as_ref(), AppendKind::Freeing, placed)
    }

    /// Appends records atomically; see [`Log::append_atomic`]. `placed` is called once, with the
    /// place of each record in order, as for [`Attempt::append`]. Never blocks. Without records it
    /// appends nothing and returns `None`.
    ///
    /// # Errors
    /// As [`Attempt::append`].
    pub fn append_atomic<P: AsRef<[u8]>>(
        &self,
        payloads: &[P],
        placed: impl FnOnce(&[Place]),
    ) -> std::result::Result<Option<Ticket>, Refused> {
        let mut places = Vec::with_capacity(payloads.len());
        let each = |place| places.push(place);
        let records = Append::records(payloads).inputs();
        let guard = self.write.accept_whole_then(&records, each).map_err(Refused)?;
        Ok(guard.map(|last| {
            placed(&places);
            self.write.ticket(last.release())
        }))
    }

    #[inline]
    fn accept(
        &self,
        payload: &[u8],
        kind: AppendKind,
        placed: impl FnOnce(Place),
    ) -> std::result::Result<Ticket, Refused> {
        let record = Input::next(&payload);
        let accepted = self.write.accept_then(record, kind, placed).map_err(Refused)?;
        Ok(self.write.ticket(accepted))
    }
}
