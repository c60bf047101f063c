//! The public methods for appending.

use std::time::{Duration, Instant};

use crate::base::error::{Result, refuse_if_forked};
use crate::base::position::{Position, Seq};
use crate::commit::core::{AppendKind, CopySpace};
use crate::log::Log;
use crate::write::append::Accepted;
use crate::write::input::{Input, Inputs};
use crate::write::ticket::Ticket;

/// # Appending
///
/// | records | methods |
/// |---|---|
/// | one | `append`, `append_async`, `try_append`, `append_timeout` |
/// | one, if it follows a given record | `append_if`, `append_if_async`, `try_append_if` |
/// | many, each on its own | `append_batch`, `append_batch_async`, `append_batch_if` |
/// | many, all or none | `append_atomic`, with `_async`, `try_`, `_timeout` and `_if` |
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
    /// [`Error::TooLarge`](crate::Error::TooLarge); [`Error::NoSpace`](crate::Error::NoSpace) on a
    /// full disk, after which the log stays usable: first this call waits for the segments that a
    /// retention lets go; [`Error::Io`](crate::Error::Io) when creating
    /// or extending a segment failed for another reason, after which the log is poisoned;
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::Closed`](crate::Error::Closed),
    /// [`Error::Stopped`](crate::Error::Stopped), [`Error::Forked`](crate::Error::Forked). In all
    /// these cases nothing was accepted.
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
    pub fn append(&self, payload: impl AsRef<[u8]>) -> Result<Ticket> {
        self.append_until(Input::next(&payload), None)
    }

    /// As [`Log::append`], but waits for room as a pending future instead of blocking.
    ///
    /// # Cancel safety
    /// Cancel-safe: a future that is dropped before it is ready has accepted nothing.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub async fn append_async(&self, payload: impl AsRef<[u8]>) -> Result<Ticket> {
        self.append_one_async(Input::next(&payload)).await
    }

    /// As [`Log::append`], but waits neither for room nor for disk space to be reserved.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::Full`](crate::Error::Full) when it would have to wait.
    pub fn try_append(&self, payload: impl AsRef<[u8]>) -> Result<Ticket> {
        self.try_append_one(Input::next(&payload))
    }

    /// As [`Log::append`], but waits for room at most this long. The engine runs the commit that
    /// makes room, so that a hanging disk does not block this call.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::Timeout`](crate::Error::Timeout) when the record was not
    /// accepted in time.
    pub fn append_timeout(&self, payload: impl AsRef<[u8]>, timeout: Duration) -> Result<Ticket> {
        self.append_until(Input::next(&payload), Instant::now().checked_add(timeout))
    }

    /// Appends a record under the number `seq`, if `prev` is the number of the log's last record.
    /// The first record of an empty log may follow any number. Numbers may leave gaps.
    ///
    /// Blocks as [`Log::append`] does.
    ///
    /// # Errors
    /// As [`Log::append`]. [`Error::Sequence`](crate::Error::Sequence) when `prev` is not the last
    /// record, or `seq` is not above it; [`Error::Conflict`](crate::Error::Conflict) when another
    /// record, not yet durable, follows `prev`. Nothing was accepted then. A caller that lost a
    /// race gets either of the two, depending on whether the other record is durable already:
    /// retry after both.
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Error, Log, Seq};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// log.append_if(Seq(41), Seq(42), "first")?.blocking_wait()?;
    /// log.append_if(Seq(42), Seq(50), "second")?.blocking_wait()?;
    /// assert!(matches!(log.append_if(Seq(42), Seq(43), "late"), Err(Error::Sequence { .. })));
    ///
    /// // A race for the next record. Decide again after each record that came first.
    /// let mut prev = Seq(42);
    /// let ticket = loop {
    ///     match log.append_if(prev, Seq(prev.0 + 10), "third") {
    ///         Err(Error::Sequence { .. } | Error::Conflict { .. }) => prev = log.accepted(),
    ///         ended => break ended?,
    ///     }
    /// };
    /// assert_eq!(ticket.blocking_wait()?.seq, Seq(60));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn append_if(&self, prev: Seq, seq: Seq, payload: impl AsRef<[u8]>) -> Result<Ticket> {
        self.append_until(Input::after(prev, seq, &payload), None)
    }

    /// As [`Log::append_if`], but waits for room as a pending future instead of blocking.
    ///
    /// # Cancel safety
    /// Cancel-safe: a future that is dropped before it is ready has accepted nothing.
    ///
    /// # Errors
    /// As [`Log::append_if`].
    pub async fn append_if_async(
        &self,
        prev: Seq,
        seq: Seq,
        payload: impl AsRef<[u8]>,
    ) -> Result<Ticket> {
        self.append_one_async(Input::after(prev, seq, &payload)).await
    }

    /// As [`Log::append_if`], but waits neither for room nor for disk space to be reserved.
    ///
    /// # Errors
    /// As [`Log::append_if`], and [`Error::Full`](crate::Error::Full) when it would have to wait.
    pub fn try_append_if(&self, prev: Seq, seq: Seq, payload: impl AsRef<[u8]>) -> Result<Ticket> {
        self.try_append_one(Input::after(prev, seq, &payload))
    }

    /// As [`Log::append`], for records that a component needs in order to free space: checkpoints,
    /// trim points. They may use the reserve of preallocated space;
    /// ordinary appends may not. Blocks.
    ///
    /// # Durability
    /// As [`Log::append`].
    ///
    /// # Errors
    /// As [`Log::append`]; [`Error::NoSpace`](crate::Error::NoSpace) also when the reserve is used
    /// up.
    pub fn append_internal(&self, payload: impl AsRef<[u8]>) -> Result<Ticket> {
        let record = Input::next(&payload);
        let accepted =
            self.write.with_room(None, || self.write.accept(record, AppendKind::Internal))?;
        Ok(self.write.ticket(accepted))
    }

    /// Appends a copy of a live record, so that the segment of its original can be dropped; see
    /// [`reclaim`](crate::reclaim). Blocks.
    ///
    /// # Durability
    /// [`Policy::Batch`](crate::Policy::Batch) does not count it, because the original is durable.
    /// Wait for the ticket, or it may stay without a commit.
    ///
    /// # Errors
    /// As [`Log::append_internal`].
    pub fn append_copy(&self, payload: impl AsRef<[u8]>, space: CopySpace) -> Result<Ticket> {
        let record = Input::next(&payload);
        let accepted =
            self.write.with_room(None, || self.write.accept(record, AppendKind::Copy(space)))?;
        Ok(self.write.ticket(accepted))
    }

    /// Appends records in order, each on its own: a crash may keep any prefix of them. Their number
    /// and total size are not limited. The ticket is that of the last record.
    ///
    /// Every record is checked before the first one is accepted. Without records, the ticket is
    /// that of the last record accepted so far. Blocks as [`Log::append`] does.
    ///
    /// # Errors
    /// As [`Log::append`]. When the log fails or the disk fills up midway, a prefix was accepted;
    /// [`Log::accepted`] returns its end.
    pub fn append_batch<P: AsRef<[u8]>>(&self, payloads: &[P]) -> Result<Ticket> {
        self.append_each(&Inputs::next(payloads))
    }

    /// As [`Log::append_batch`], but waits for room as a pending future instead of blocking.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has accepted a prefix of the records.
    ///
    /// # Errors
    /// As [`Log::append_batch`].
    pub async fn append_batch_async<P: AsRef<[u8]>>(&self, payloads: &[P]) -> Result<Ticket> {
        let records = Inputs::next(payloads);
        self.write.check_batch(&records)?;
        let mut last = None;
        for &record in &*records {
            let accepted = self
                .write
                .with_room_async(|| self.write.accept(record, AppendKind::Ordinary))
                .await?;
            last = Some(accepted);
        }
        self.ticket_of_batch(last)
    }

    /// As [`Log::append_batch`], under the caller's numbers: the first record is to follow `prev`,
    /// each other one the one before it.
    ///
    /// # Errors
    /// As [`Log::append_batch`] and [`Log::append_if`]. When another caller's record comes between
    /// them, a prefix was accepted; [`Log::append_atomic_if`] rules that out.
    pub fn append_batch_if<P: AsRef<[u8]>>(
        &self,
        prev: Seq,
        records: &[(Seq, P)],
    ) -> Result<Ticket> {
        self.append_each(&Inputs::after(prev, records))
    }

    /// Appends records atomically: after a crash all of them are recovered, or none. Payloads and
    /// headers together take at most about 88 MiB; the overhead is 16 to 23 bytes per record.
    ///
    /// The ticket is that of the last record. Without records, it is that of the last record
    /// accepted so far. Blocks as [`Log::append`] does.
    ///
    /// # Errors
    /// As [`Log::append`], and [`Error::BatchTooLarge`](crate::Error::BatchTooLarge). Nothing was
    /// accepted then.
    pub fn append_atomic<P: AsRef<[u8]>>(&self, payloads: &[P]) -> Result<Ticket> {
        self.append_whole_until(&Inputs::next(payloads), None)
    }

    /// As [`Log::append_atomic`], but waits for room as a pending future instead of blocking.
    ///
    /// # Cancel safety
    /// Cancel-safe: a future that is dropped before it is ready has accepted nothing.
    ///
    /// # Errors
    /// As [`Log::append_atomic`].
    pub async fn append_atomic_async<P: AsRef<[u8]>>(&self, payloads: &[P]) -> Result<Ticket> {
        let records = Inputs::next(payloads);
        let ticket = self.write.with_room_async(|| self.write.append_whole(&records)).await?;
        ticket.map_or_else(|| self.barrier(), Ok)
    }

    /// As [`Log::append_atomic`], but waits neither for room nor for disk space to be reserved.
    ///
    /// # Errors
    /// As [`Log::append_atomic`], and [`Error::Full`](crate::Error::Full) when it would have to
    /// wait.
    pub fn try_append_atomic<P: AsRef<[u8]>>(&self, payloads: &[P]) -> Result<Ticket> {
        let records = Inputs::next(payloads);
        let ticket = self.write.without_waiting(|| self.write.append_whole(&records))?;
        ticket.map_or_else(|| self.barrier(), Ok)
    }

    /// As [`Log::append_atomic`], but waits for room at most this long. The engine runs the commit
    /// that makes room, so that a hanging disk does not block this call.
    ///
    /// # Errors
    /// As [`Log::append_atomic`], and [`Error::Timeout`](crate::Error::Timeout) when the records
    /// were not accepted in time.
    pub fn append_atomic_timeout<P: AsRef<[u8]>>(
        &self,
        payloads: &[P],
        timeout: Duration,
    ) -> Result<Ticket> {
        self.append_whole_until(&Inputs::next(payloads), Instant::now().checked_add(timeout))
    }

    /// As [`Log::append_atomic`], under the caller's numbers: the first record is to follow `prev`,
    /// each other one the one before it.
    ///
    /// # Errors
    /// As [`Log::append_atomic`] and [`Log::append_if`]. Nothing was accepted then.
    pub fn append_atomic_if<P: AsRef<[u8]>>(
        &self,
        prev: Seq,
        records: &[(Seq, P)],
    ) -> Result<Ticket> {
        self.append_whole_until(&Inputs::after(prev, records), None)
    }

    /// Returns a ticket that resolves when everything accepted before this call is durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::Closed`](crate::Error::Closed) or
    /// [`Error::Stopped`](crate::Error::Stopped) when the log accepts no more records.
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
    pub fn barrier(&self) -> Result<Ticket> {
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

    fn append_until(&self, record: Input<'_>, deadline: Option<Instant>) -> Result<Ticket> {
        let accepted =
            self.write.with_room(deadline, || self.write.accept(record, AppendKind::Ordinary))?;
        Ok(self.write.ticket(accepted))
    }

    async fn append_one_async(&self, record: Input<'_>) -> Result<Ticket> {
        let accepted =
            self.write.with_room_async(|| self.write.accept(record, AppendKind::Ordinary)).await?;
        Ok(self.write.ticket(accepted))
    }

    fn try_append_one(&self, record: Input<'_>) -> Result<Ticket> {
        let accepted =
            self.write.without_waiting(|| self.write.accept(record, AppendKind::Ordinary))?;
        Ok(self.write.ticket(accepted))
    }

    fn append_each(&self, records: &[Input<'_>]) -> Result<Ticket> {
        self.write.check_batch(records)?;
        let mut last = None;
        for &record in records {
            // Earlier records get no ticket: dropping one could request a commit.
            last = Some(
                self.write.with_room(None, || self.write.accept(record, AppendKind::Ordinary))?,
            );
        }
        self.ticket_of_batch(last)
    }

    fn append_whole_until(
        &self,
        records: &[Input<'_>],
        deadline: Option<Instant>,
    ) -> Result<Ticket> {
        let ticket = self.write.with_room(deadline, || self.write.append_whole(records))?;
        ticket.map_or_else(|| self.barrier(), Ok)
    }

    fn ticket_of_batch(&self, last: Option<Accepted>) -> Result<Ticket> {
        match last {
            Some(accepted) => Ok(self.write.ticket(accepted)),
            None => self.barrier(),
        }
    }
}
