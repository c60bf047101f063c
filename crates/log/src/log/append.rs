//! The public methods for appending.

use std::time::{Duration, Instant};

use crate::base::log_error::{LogError, refuse_if_forked};
use crate::base::operation_errors::AppendError;
use crate::base::position::Position;
use crate::base::purpose::Purpose;
use crate::base::write_error::WriteError;
use crate::log::Log;
use crate::write::accept::Accepted;
use crate::write::input::{Append, Input};
use crate::write::ticket::Ticket;

/// # Appending
///
/// The value says what to write, and the method how to wait for room:
///
/// | wait | one record | an [`Append`]: several records, all or none, or on a condition |
/// |---|---|---|
/// | blocks | `append` | `write` |
/// | as a future | `append_async` | `write_async` |
/// | not at all | `try_append` | `try_write` |
/// | blocks for a limited time | `append_timeout` | `write_timeout` |
impl Log {
    /// Appends a record: assigns its place in the order, copies the payload, and returns a ticket
    /// that resolves when the record is durable.
    ///
    /// Blocks while the staging memory is full or the policy allows no more records at risk. The
    /// next commit ends the wait; this call runs that commit itself if no other thread does. In
    /// async code, use [`Log::append_async`], which waits without blocking.
    ///
    /// Allocates no memory per record. [`AsRef::as_ref`] of the payload is called once, outside
    /// every lock.
    ///
    /// # Errors
    /// [`AppendError::TooLarge`](crate::AppendError::TooLarge);
    /// [`AppendError::NoSpace`](crate::AppendError::NoSpace) on a full disk, after which the log
    /// stays usable: first this call waits for the segments that a retention lets go;
    /// [`LogError::Io`](crate::LogError::Io) when creating or extending a segment failed for
    /// another reason, after which the log is poisoned;
    /// [`LogError::Poisoned`](crate::LogError::Poisoned),
    /// [`LogError::Closed`](crate::LogError::Closed),
    /// [`LogError::Stopped`](crate::LogError::Stopped),
    /// [`LogError::Forked`](crate::LogError::Forked). In all these cases nothing was
    /// accepted.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// let ticket = log.append("a record")?; // accepted: its number is known
    /// assert_eq!(ticket.seq(), esker_log::Seq(1));
    /// ticket.blocking_wait()?; // durable
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn append(&self, payload: impl AsRef<[u8]>) -> Result<Ticket, AppendError> {
        self.append_until(Input::next(&payload), None)
    }

    /// As [`Log::append`], but waits for room as a pending future instead of blocking.
    ///
    /// # Cancel safety
    /// Cancel-safe: a future that is dropped before it is ready has accepted nothing.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub async fn append_async(&self, payload: impl AsRef<[u8]>) -> Result<Ticket, AppendError> {
        self.append_one_async(Input::next(&payload)).await
    }

    /// As [`Log::append`], but waits neither for room nor for disk space.
    ///
    /// # Errors
    /// As [`Log::append`], and [`AppendError::Full`](crate::AppendError::Full) when it would have
    /// to wait.
    pub fn try_append(&self, payload: impl AsRef<[u8]>) -> Result<Ticket, AppendError> {
        self.try_append_one(Input::next(&payload))
    }

    /// As [`Log::append`], but waits for room at most this long. The engine runs the commit that
    /// makes room, so that a hanging disk does not block this call.
    ///
    /// # Errors
    /// As [`Log::append`], and [`AppendError::Timeout`](crate::AppendError::Timeout) when the
    /// record was not accepted in time.
    pub fn append_timeout(
        &self,
        payload: impl AsRef<[u8]>,
        timeout: Duration,
    ) -> Result<Ticket, AppendError> {
        self.append_until(Input::next(&payload), Instant::now().checked_add(timeout))
    }

    /// Writes records as the [`Append`] says: several at once, all or none, under the caller's
    /// numbers, or only after a given record. The ticket is that of the last record.
    ///
    /// Every record is checked before the first one is accepted. Without records nothing is checked
    /// but whether the log accepts any, and the ticket is that of the last record accepted so far.
    /// Their number is not limited. Blocks as [`Log::append`] does; records that are not atomic are
    /// accepted one by one as there is room.
    ///
    /// Allocates no memory for up to 32 records. [`AsRef::as_ref`] of each payload is called once,
    /// outside every lock.
    ///
    /// # Errors
    /// As [`Log::append`], with [`WriteError::accepted`]: when the log fails, the disk fills up or
    /// another caller's record comes first midway, the records before that were accepted, unless
    /// they are atomic.
    ///
    /// [`AppendError::BatchTooLarge`](crate::AppendError::BatchTooLarge) of atomic records.
    ///
    /// [`AppendError::Sequence`](crate::AppendError::Sequence) when a record that is to be followed
    /// is not the last one, or a number is not above it;
    /// [`AppendError::Conflict`](crate::AppendError::Conflict) when another record, not yet
    /// durable, follows it. A caller that lost a race gets either of the two, depending on whether
    /// the other record is durable already: retry after both.
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Append, AppendError, Error, Log, Seq, WriteError};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let transfer = ["from alice: 5", "to bob: 5"];
    /// log.write(Append::records(&transfer).atomic())?.blocking_wait()?; // both, or none
    ///
    /// // A race for the next record. Decide again after each record that came first.
    /// let mut prev = Seq(1);
    /// let ticket = loop {
    ///     match log.write(Append::after(prev, &["third"])) {
    ///         Err(WriteError {
    ///             error: AppendError::Sequence { .. } | AppendError::Conflict { .. },
    ///             ..
    ///         }) => prev = log.accepted(),
    ///         ended => break ended?,
    ///     }
    /// };
    /// assert_eq!(ticket.blocking_wait()?.seq, Seq(3));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn write<P: AsRef<[u8]>>(&self, append: Append<'_, P>) -> Result<Ticket, WriteError> {
        self.write_until(append, None)
    }

    /// As [`Log::write`], but waits for room as a pending future instead of blocking.
    ///
    /// # Cancel safety
    /// Cancel-safe for one record and for atomic ones: a future that is dropped before it is ready
    /// has accepted nothing. Of others it may have accepted the first ones.
    ///
    /// # Errors
    /// As [`Log::write`].
    pub async fn write_async<P: AsRef<[u8]>>(
        &self,
        append: Append<'_, P>,
    ) -> Result<Ticket, WriteError> {
        if let Some(record) = append.single() {
            return Ok(self.append_one_async(record).await?);
        }
        let records = append.inputs();
        if append.is_atomic() {
            let last = self.write.with_room_async(|| self.write.accept_whole(&records)).await?;
            return Ok(self.ticket_of_batch(last)?);
        }
        self.write.check_batch(&records)?;
        let mut last = None;
        for (accepted, &record) in records.iter().enumerate() {
            let attempt = || self.write.accept(record, Purpose::Ordinary);
            let placed = self.write.with_room_async(attempt).await;
            last = Some(placed.map_err(|error| WriteError { error, accepted })?);
        }
        Ok(self.ticket_of_batch(last)?)
    }

    /// As [`Log::write`], but waits neither for room nor for disk space.
    ///
    /// # Errors
    /// As [`Log::write`], and [`AppendError::Full`](crate::AppendError::Full) when it would have to
    /// wait: [`WriteError::accepted`] records had room, and none if they are atomic.
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Append, AppendError, Error, Log, WriteError};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let mut left = &[[7; 100]; 50][..];
    /// while !left.is_empty() {
    ///     match log.try_write(Append::records(left)) {
    ///         Err(WriteError { error: AppendError::Full, accepted, .. }) => {
    ///             left = &left[accepted..];
    ///             log.barrier()?.blocking_wait()?; // or do something else meanwhile
    ///         }
    ///         ended => {
    ///             ended?.blocking_wait()?;
    ///             left = &[];
    ///         }
    ///     }
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn try_write<P: AsRef<[u8]>>(&self, append: Append<'_, P>) -> Result<Ticket, WriteError> {
        if let Some(record) = append.single() {
            return Ok(self.try_append_one(record)?);
        }
        let records = append.inputs();
        if append.is_atomic() {
            let last = self.write.without_waiting(|| self.write.accept_whole(&records))?;
            return Ok(self.ticket_of_batch(last)?);
        }
        self.write_each(&records, |record| {
            self.write.without_waiting(|| self.write.accept(record, Purpose::Ordinary))
        })
    }

    /// As [`Log::write`], but waits for room at most this long. The engine runs the commits that
    /// make room, so that a hanging disk does not block this call.
    ///
    /// # Errors
    /// As [`Log::write`], and [`AppendError::Timeout`](crate::AppendError::Timeout) when not all
    /// records were accepted in time: [`WriteError::accepted`] were, and none if they are atomic.
    pub fn write_timeout<P: AsRef<[u8]>>(
        &self,
        append: Append<'_, P>,
        timeout: Duration,
    ) -> Result<Ticket, WriteError> {
        self.write_until(append, Instant::now().checked_add(timeout))
    }

    /// Returns a ticket that resolves when everything accepted before this call is durable.
    ///
    /// # Errors
    /// [`LogError::Poisoned`](crate::LogError::Poisoned),
    /// [`LogError::Closed`](crate::LogError::Closed) or
    /// [`LogError::Stopped`](crate::LogError::Stopped) when the log accepts no more records.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// for n in 0..100u32 {
    ///     let _ = log.append(n.to_le_bytes())?; // no wait for each record
    /// }
    /// log.barrier()?.blocking_wait()?; // all of them are durable
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn barrier(&self) -> Result<Ticket, LogError> {
        refuse_if_forked()?;
        let state = self.write.lock();
        if let Some(terminal) = state.core.terminal() {
            return Err(terminal.refusal());
        }
        let (seq, unit) = (state.core.last_seq(), state.core.last_unit());
        drop(state);
        let position = Position(self.write.watermark.position());
        Ok(self.write.ticket((seq, unit, position)))
    }

    fn append_until(
        &self,
        record: Input<'_>,
        deadline: Option<Instant>,
    ) -> Result<Ticket, AppendError> {
        let accepted =
            self.write.with_room(deadline, || self.write.accept(record, Purpose::Ordinary))?;
        Ok(self.write.ticket(accepted))
    }

    async fn append_one_async(&self, record: Input<'_>) -> Result<Ticket, AppendError> {
        let accepted =
            self.write.with_room_async(|| self.write.accept(record, Purpose::Ordinary)).await?;
        Ok(self.write.ticket(accepted))
    }

    fn try_append_one(&self, record: Input<'_>) -> Result<Ticket, AppendError> {
        let accepted =
            self.write.without_waiting(|| self.write.accept(record, Purpose::Ordinary))?;
        Ok(self.write.ticket(accepted))
    }

    fn write_until<P: AsRef<[u8]>>(
        &self,
        append: Append<'_, P>,
        deadline: Option<Instant>,
    ) -> Result<Ticket, WriteError> {
        if let Some(record) = append.single() {
            return Ok(self.append_until(record, deadline)?);
        }
        let records = append.inputs();
        if append.is_atomic() {
            let last = self.write.with_room(deadline, || self.write.accept_whole(&records))?;
            return Ok(self.ticket_of_batch(last)?);
        }
        self.write_each(&records, |record| {
            self.write.with_room(deadline, || self.write.accept(record, Purpose::Ordinary))
        })
    }

    fn write_each(
        &self,
        records: &[Input<'_>],
        accept: impl Fn(Input<'_>) -> Result<Accepted, AppendError>,
    ) -> Result<Ticket, WriteError> {
        self.write.check_batch(records)?;
        let mut last = None;
        for (accepted, &record) in records.iter().enumerate() {
            // Earlier records get no ticket: dropping one could request a commit.
            last = Some(accept(record).map_err(|error| WriteError { error, accepted })?);
        }
        Ok(self.ticket_of_batch(last)?)
    }

    fn ticket_of_batch(&self, last: Option<Accepted>) -> Result<Ticket, LogError> {
        match last {
            Some(accepted) => Ok(self.write.ticket(accepted)),
            None => self.barrier(),
        }
    }
}
