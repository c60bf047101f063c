//! Reading records of an open log, waiting for durability, and its counters.

use std::future::poll_fn;
use std::task::Poll;

use crate::base::error::{Error, Result};
use crate::base::log_error::{LogError, refuse_if_forked};
use crate::base::operation_errors::ReadError;
use crate::base::position::{Position, Seq};
use crate::commit::lock_order::ChangingSegments;
use crate::log::Log;
use crate::log::stats::LogStats;
use crate::read::batch::View;
use crate::read::cursor::{self, Start};
use crate::read::local_feed::LocalFeed;
use crate::read::read_half::ReadHalf;
use crate::read::stream::{LogStream, read_one};
use crate::runtime::counters::Counts;
use crate::runtime::waiters::{Registration, WaitCondition};

impl Log {
    /// Streams records from a start point on. Does no I/O until the first batch, except for
    /// [`Start::At`] and [`Start::Position`], and uses almost no memory.
    ///
    /// # Errors
    /// [`ReadError::Trimmed`] when the start point was dropped, [`ReadError::InvalidPosition`],
    /// [`LogError::Closed`].
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Append, Log, Start};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// log.write(Append::records(&["a", "b"]))?.blocking_wait()?;
    /// let mut stream = log.stream(Start::Oldest)?;
    /// while let Some(batch) = stream.try_next()? {
    ///     for record in &batch {
    ///         println!("{} {:?}", record.seq, record.payload);
    ///     }
    /// }
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn stream(&self, start: Start) -> Result<LogStream, ReadError> {
        let feed = LocalFeed::new(&self.read, start).map_err(ReadError::narrow)?;
        Ok(LogStream::new(Box::new(feed.registered())))
    }

    /// Returns the record with this number. Unless the record is in memory, reads at most the bytes
    /// between two sparse index entries plus the record, and blocks for that. Bytes that come from
    /// a file are checked.
    ///
    /// # Errors
    /// [`ReadError::NotFound`] when no durable record has this number, [`ReadError::Trimmed`],
    /// [`ReadError::Quarantined`], [`ReadError::Corrupted`], [`LogError::Io`],
    /// [`LogError::Closed`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// let appended = log.append("a record")?.blocking_wait()?;
    /// assert_eq!(&*log.read(appended.seq)?, b"a record");
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn read(&self, seq: impl Into<Seq>) -> Result<View, ReadError> {
        self.refuse_if_closed()?;
        let source = &*self.read;
        cursor::read(source, seq.into()).map_err(|error| exact(source, error))
    }

    /// As [`Log::read`], without blocking: unless the record is in memory, a thread of the engine
    /// reads up to a megabyte, which all streams share.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// As [`Log::read`].
    ///
    /// # Examples
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let log = esker_log::Log::builder(dir.path().join("log")).open_async().await?;
    /// let appended = log.append_async("a record").await?.await?;
    /// assert_eq!(&*log.read_async(appended.seq).await?, b"a record");
    /// log.close_async().await?;
    /// # Ok::<(), esker_log::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn read_async(&self, seq: impl Into<Seq>) -> Result<View, ReadError> {
        let seq = seq.into();
        self.refuse_if_closed()?;
        if seq == Seq::ZERO {
            return Err(ReadError::NotFound { seq });
        }
        let feed = LocalFeed::new(&self.read, Start::From(seq)).map_err(ReadError::narrow)?;
        read_one(feed, seq).await
    }

    /// Returns the record at a position taken from a ticket or a record. Blocks as [`Log::read`].
    ///
    /// # Errors
    /// [`ReadError::InvalidPosition`] when no durable record starts there, and as [`Log::read`].
    pub fn read_at(&self, position: Position) -> Result<View, ReadError> {
        self.refuse_if_closed()?;
        let source = &*self.read;
        cursor::read_at(source, position).map_err(|error| exact(source, error))
    }

    /// Returns the number of the oldest stored record, or of the next record in an empty log.
    pub fn oldest(&self) -> Seq {
        cursor::oldest(&*self.read)
    }

    /// Returns the durable watermark: every record up to it survives power loss. 0 when there is
    /// none.
    #[inline]
    pub fn durable(&self) -> Seq {
        Seq(self.read.watermark.seq())
    }

    /// Returns the number of the last accepted record; 0 when there is none.
    pub fn accepted(&self) -> Seq {
        Seq(self.write.lock().core.last_seq())
    }

    /// Waits until the durable watermark reaches a number. Requests no commit.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// The reason why the log accepts no more records, when that happens first.
    pub async fn wait_durable(&self, seq: impl Into<Seq>) -> Result<(), LogError> {
        let seq = seq.into().0;
        let mut place = Registration::new(&self.read.waiters);
        poll_fn(|cx| {
            refuse_if_forked()?;
            self.read.waiters.register(&mut place.key, WaitCondition::Durable(seq), cx.waker());
            match self.write.outcome(seq) {
                Some(outcome) => Poll::Ready(outcome),
                None if self.read.is_closed() => Poll::Ready(Err(LogError::Closed)),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Returns what this process did with the log since it opened it, and what is pending. No I/O.
    pub fn stats(&self) -> LogStats {
        let write = &*self.write;
        let waiting = write.waiters.callers();
        let state = write.lock();
        let (core, committing) = (&state.core, state.committing_callers);
        let (appended, payload_bytes) = core.appended();
        let (records, pending) = (core.written_records(), core.pending_records());
        let (accepted, in_flight) = (core.last_seq(), core.in_flight());
        drop(state);
        let Counts { commits, syncs, bytes } = write.counters.read();
        LogStats {
            commits,
            syncs,
            bytes,
            records,
            appended,
            payload_bytes,
            accepted: Seq(accepted),
            pending,
            in_flight,
            waiting: write.waiters.len(),
            waiting_for_durability: waiting.for_durability
                + committing.for_durability
                + write.callbacks.len(),
            waiting_for_room: waiting.for_room + committing.for_room,
            memory_bytes: write.tail.bytes(),
            disk: self.owner.disk_name,
            direct: write.mode.direct,
            dsync: write.mode.dsync,
        }
    }

    pub(crate) fn refuse_if_closed(&self) -> Result<(), LogError> {
        self.read.refuse_if_closed()
    }

    /// Takes the lock of the set of segments, unless the log is closed.
    pub(crate) fn change_segments(&self) -> Result<ChangingSegments<'_>, LogError> {
        refuse_if_forked()?;
        let changing = self.write.change_segments();
        self.refuse_if_closed()?;
        Ok(changing)
    }

    /// Turns an error of a file beside the log into [`Error::NoSpace`] where that is the cause.
    pub(crate) fn for_want_of_space(&self, error: Error, bytes: u64) -> Error {
        error.for_want_of_space(self.write.dir.path(), bytes, self.write.watermark.seq())
    }
}

/// The error of a read, with the exact number of the oldest record where the record was dropped.
fn exact(source: &ReadHalf, error: Error) -> ReadError {
    ReadError::narrow(cursor::exactly(source, error))
}
