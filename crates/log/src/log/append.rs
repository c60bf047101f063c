//! The public methods for appending.

use std::time::{Duration, Instant};

use crate::base::error::Result;
use crate::log::Log;
use crate::write::input::{Append, Input, Inputs};
use crate::write::ticket::Ticket;

impl Log {
    /// Appends a record: assigns its place in the order, copies the payload, and returns a ticket
    /// that resolves when the record is durable.
    ///
    /// Blocks while the staging memory is full or the policy allows no more records at risk. The
    /// next commit ends the wait; this call runs that commit itself if no other thread does. In
    /// async code, use [`Log::append_async`], which waits without blocking.
    ///
    /// Allocates no memory per record.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge); [`Error::Sequence`](crate::Error::Sequence) and
    /// [`Error::Conflict`](crate::Error::Conflict) for a numbered record that does not follow the
    /// last one; [`Error::NoSpace`](crate::Error::NoSpace) on a full disk, after which the log
    /// stays usable; [`Error::Io`](crate::Error::Io) when creating or extending a segment failed
    /// for another reason, after which the log is poisoned;
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::Closed`](crate::Error::Closed),
    /// [`Error::Stopped`](crate::Error::Stopped). In all these cases nothing was accepted.
    pub fn append(&self, record: impl Append) -> Result<Ticket> {
        self.append_until(&record, None)
    }

    /// As [`Log::append`], for records that a component needs in order to free space: checkpoints,
    /// trim points, copies of live records. They may use the reserve of preallocated space;
    /// ordinary appends may not. Blocks.
    ///
    /// # Durability
    /// As [`Log::append`].
    ///
    /// # Errors
    /// As [`Log::append`]; [`Error::NoSpace`](crate::Error::NoSpace) also when the reserve is used
    /// up.
    pub fn append_internal(&self, record: impl Append) -> Result<Ticket> {
        let record = Input::take(&record);
        let accepted = self.write.with_room(None, || self.write.accept(record, true))?;
        Ok(self.write.ticket(accepted))
    }

    /// As [`Log::append`], but waits for room at most this long. The engine runs the commit that
    /// makes room, so that a hanging disk does not block this call.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::Timeout`](crate::Error::Timeout) when the record was not
    /// accepted in time.
    pub fn append_timeout(&self, record: impl Append, timeout: Duration) -> Result<Ticket> {
        self.append_until(&record, Instant::now().checked_add(timeout))
    }

    /// As [`Log::append`], but waits neither for room nor for disk space to be reserved.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::Full`](crate::Error::Full) when it would have to wait.
    pub fn try_append(&self, record: impl Append) -> Result<Ticket> {
        self.write.try_append(Input::take(&record))
    }

    /// As [`Log::append`], but waits for room as a pending future instead of blocking.
    ///
    /// # Cancel safety
    /// Cancel-safe: a future that is dropped before it is ready has accepted nothing.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub async fn append_async(&self, record: impl Append) -> Result<Ticket> {
        Ok(self.write.ticket(self.write.accept_async(Input::take(&record)).await?))
    }

    /// Appends records in order, each on its own: a crash may keep any prefix of them. Their number
    /// and total size are not limited. The ticket is that of the last record.
    ///
    /// Every record is checked before the first one is accepted. Without records, the ticket is
    /// that of the last record accepted so far.
    ///
    /// # Errors
    /// As [`Log::append`]. When the log fails or the disk fills up midway, a prefix was accepted;
    /// [`Log::accepted`] returns its end. The same holds when another writer's record comes between
    /// [`Numbered`](crate::Numbered) ones; [`Log::append_atomic`] rules that out.
    pub fn append_batch<A: Append>(&self, records: &[A]) -> Result<Ticket> {
        let records = Inputs::take(records);
        self.write.check_batch(&records)?;
        let mut last = None;
        for &record in &*records {
            // Earlier records get no ticket: dropping one could request a commit.
            last = Some(self.write.append_until_quietly(record, None)?);
        }
        match last {
            Some(accepted) => Ok(self.write.ticket(accepted)),
            None => self.barrier(),
        }
    }

    /// As [`Log::append_batch`], but waits for room as a pending future instead of blocking.
    ///
    /// # Cancel safety
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

    /// Appends records atomically: after a crash all of them are recovered, or none. Payloads and
    /// headers together take at most about 88 MiB; the overhead is 16 to 23 bytes per record.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::BatchTooLarge`](crate::Error::BatchTooLarge).
    pub fn append_atomic<A: Append>(&self, records: &[A]) -> Result<Ticket> {
        let records = Inputs::take(records);
        match self.write.with_room(None, || self.write.append_whole(&records))? {
            Some(ticket) => Ok(ticket),
            None => self.barrier(),
        }
    }

    /// Returns a ticket that resolves when everything accepted before this call is durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::Closed`](crate::Error::Closed) or
    /// [`Error::Stopped`](crate::Error::Stopped) when the log accepts no more records.
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
