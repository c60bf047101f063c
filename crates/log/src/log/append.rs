//! Appending: the public methods.

use std::time::{Duration, Instant};

use crate::base::error::Result;
use crate::log::Log;
use crate::write::input::{Append, Input, Inputs};
use crate::write::ticket::Ticket;

impl Log {
    /// Accepts a record: gives it its place in the order and copies the payload. The ticket tells
    /// when it is durable.
    ///
    /// Waits, blocking, while the staging memory is full or the policy allows no more records at
    /// risk; that ends with a commit, which this call drives itself if nobody else does. In async
    /// code [`Log::append_async`] waits without blocking.
    ///
    /// No memory is allocated for a record.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Sequence`] and [`Error::Conflict`] for a numbered record that
    /// does not follow the last one; [`Error::NoSpace`] on a full disk, after which the log goes on;
    /// [`Error::Io`] when a segment could not be made for another reason, after which it does not;
    /// [`Error::Poisoned`], [`Error::Closed`], [`Error::Stopped`]. In all these cases nothing was
    /// accepted.
    pub fn append(&self, record: impl Append) -> Result<Ticket> {
        self.append_until(&record, None)
    }

    /// As [`Log::append`], for records that a component needs in order to give space back:
    /// checkpoints, floors, copies of what is still live. They may use the reserve of preallocated
    /// space, which ordinary appends may not. Blocks.
    ///
    /// # Durability
    /// As [`Log::append`].
    ///
    /// # Errors
    /// As [`Log::append`]; [`Error::NoSpace`] when the reserve is used up, too.
    pub fn append_internal(&self, record: impl Append) -> Result<Ticket> {
        let record = Input::take(&record);
        let accepted = self.write.with_room(None, || self.write.accept(record, true))?;
        Ok(self.write.ticket(accepted))
    }

    /// As [`Log::append`], but waits for room no longer than this. The commit that makes
    /// room is left to the engine, so that a disk that hangs does not hold up this call.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::Timeout`] when nothing was accepted in time.
    pub fn append_timeout(&self, record: impl Append, timeout: Duration) -> Result<Ticket> {
        self.append_until(&record, Instant::now().checked_add(timeout))
    }

    /// As [`Log::append`], but does not wait for room, nor for space to be reserved on the disk.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::Full`].
    pub fn try_append(&self, record: impl Append) -> Result<Ticket> {
        self.write.try_append(Input::take(&record))
    }

    /// As [`Log::append`], but a wait for room is a pending future.
    ///
    /// Cancel-safe: a future that is dropped before it is ready has accepted nothing.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub async fn append_async(&self, record: impl Append) -> Result<Ticket> {
        Ok(self.write.ticket(self.write.accept_async(Input::take(&record)).await?))
    }

    /// Accepts records in order, each on its own: a crash may keep any prefix of them. There may be
    /// any number of them, of any size together. The ticket is that of the last.
    ///
    /// Everything is checked before anything is accepted. Without records the ticket is that of the
    /// last record accepted so far.
    ///
    /// # Errors
    /// As [`Log::append`]. When the log fails in the middle, or the disk is full there, a prefix was
    /// accepted ([`Log::accepted`] says how long it is); so it was when
    /// another writer's record came between [`Numbered`](crate::Numbered) ones, which
    /// [`Log::append_atomic`] does not let happen.
    pub fn append_batch<A: Append>(&self, records: &[A]) -> Result<Ticket> {
        let records = Inputs::take(records);
        self.write.check_batch(&records)?;
        let mut last = None;
        for &record in &*records {
            // A ticket that is replaced was never looked at, and asks for nothing.
            last = Some(self.write.append_until_quietly(record, None)?);
        }
        match last {
            Some(accepted) => Ok(self.write.ticket(accepted)),
            None => self.barrier(),
        }
    }

    /// As [`Log::append_batch`], but waits for room are pending futures.
    ///
    /// A future that is dropped before it is ready has accepted a prefix of the records.
    ///
    /// # Errors
    /// As [`Log::append_batch`].
    pub async fn append_batch_async<A: Append>(&self, records: &[A]) -> Result<Ticket> {
        let records = Inputs::take(records);
        self.write.check_batch(&records)?;
        let mut last = None;
        for &record in &*records {
            last = Some(self.write.accept_async(record).await?);
        }
        match last {
            Some(accepted) => Ok(self.write.ticket(accepted)),
            None => self.barrier(),
        }
    }

    /// Accepts records as one: after a crash all of them are there, or none. Together they take at
    /// most 64 MiB, and 16 to 23 bytes more for each.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::BatchTooLarge`].
    pub fn append_atomic<A: Append>(&self, records: &[A]) -> Result<Ticket> {
        let records = Inputs::take(records);
        match self.write.with_room(None, || self.write.append_whole(&records))? {
            Some(ticket) => Ok(ticket),
            None => self.barrier(),
        }
    }

    /// A barrier: a ticket that resolves when everything accepted before this call is durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`] or [`Error::Stopped`] when the log takes no more
    /// records.
    pub fn barrier(&self) -> Result<Ticket> {
        let state = self.write.lock();
        if let Some(terminal) = state.core.terminal() {
            return Err(terminal.refusal());
        }
        let (seq, unit) = (state.core.last_seq(), state.core.last_unit());
        drop(state);
        let position = crate::base::position::Position(self.write.watermark.position());
        Ok(self.write.ticket((seq, unit, position)))
    }

    fn append_until(&self, record: &impl Append, deadline: Option<Instant>) -> Result<Ticket> {
        let record = Input::take(record);
        Ok(self.write.ticket(self.write.append_until_quietly(record, deadline)?))
    }
}
