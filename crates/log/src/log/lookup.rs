//! Reading single records, and the log's metadata.

use std::future::poll_fn;
use std::task::Poll;

use crate::base::error::{Error, Result};
use crate::base::position::{Position, Seq};
use crate::log::Log;
use crate::log::stats::LogStats;
use crate::read::batch::{Batch, View};
use crate::read::cursor::{self, Start};
use crate::read::feed::LocalFeed;
use crate::read::metadata::{Metadata, SegmentInfo};
use crate::read::stream::LogStream;
use crate::runtime::counters::Counts;
use crate::runtime::waiters::{For, Registered};

impl Log {
    /// Streams records from a start point on. Does no I/O until the first batch and uses almost no
    /// memory.
    ///
    /// # Errors
    /// [`Error::Trimmed`] when the start point was dropped, [`Error::Closed`].
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Log, Start};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// log.append_batch(&["a", "b"])?.blocking_wait()?;
    /// let mut stream = log.stream(Start::Oldest)?;
    /// while let Some(batch) = stream.try_next()? {
    ///     for record in &batch {
    ///         println!("{} {:?}", record.seq, record.payload);
    ///     }
    /// }
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn stream(&self, start: Start) -> Result<LogStream> {
        Ok(LogStream::new(Box::new(LocalFeed::new(&self.read, start)?)))
    }

    /// Returns the record with this number. Unless the record is in memory, reads at most the bytes
    /// between two sparse index entries plus the record. Bytes that come from a file are checked.
    ///
    /// # Errors
    /// [`Error::NotFound`] when no durable record has this number, [`Error::Trimmed`],
    /// [`Error::Quarantined`], [`Error::Corrupted`], [`Error::Io`], [`Error::Closed`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// let appended = log.append("a record")?.blocking_wait()?;
    /// assert_eq!(&*log.read(appended.seq)?, b"a record");
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn read(&self, seq: impl Into<Seq>) -> Result<View> {
        self.refuse_if_closed()?;
        let source = &*self.read;
        cursor::read(source, seq.into()).map_err(|error| cursor::exactly(source, error))
    }

    /// Returns the record at a position taken from a ticket or a record.
    ///
    /// # Errors
    /// [`Error::InvalidPosition`] when no durable record starts there, and as [`Log::read`].
    pub fn read_at(&self, position: Position) -> Result<View> {
        self.refuse_if_closed()?;
        let source = &*self.read;
        cursor::read_at(source, position).map_err(|error| cursor::exactly(source, error))
    }

    /// Returns the records that are accepted but not yet durable, in order. No other read returns
    /// them, and a crash may lose them. Under [`Policy::OsBuffered`](crate::Policy::OsBuffered)
    /// these are the records not yet written to the operating system.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn accepted_tail(&self) -> Result<Vec<Batch>> {
        self.refuse_if_closed()?;
        let state = self.write.lock();
        let staged: Vec<_> = state.core.staged().collect();
        // No record gets a place while this lock is held, so the number of unfinished copies is
        // bounded. The appenders finish their copies without the lock.
        for staged in &staged {
            let bytes = staged.records.end - staged.records.start;
            let fill_tracker = state.core.fill_tracker(staged.unit);
            let written = state.core.written().unit >= staged.unit;
            while !written && fill_tracker.complete(bytes).is_none() {
                std::thread::yield_now();
            }
        }
        drop(state);
        Ok(staged.into_iter().map(Batch::of_staged).collect())
    }

    /// Returns the number of the last durable record, without I/O; `None` when there never was one.
    pub fn last(&self) -> Option<Seq> {
        let seq = self.durable();
        (seq > Seq::ZERO).then_some(seq)
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
    pub async fn wait_durable(&self, seq: impl Into<Seq>) -> Result<()> {
        let seq = seq.into().0;
        let mut place = Registered::new(&self.read.waiters);
        poll_fn(|cx| {
            self.read.waiters.register(&mut place.key, For::Durable(seq), cx.waker());
            match self.write.outcome(seq) {
                Some(outcome) => Poll::Ready(outcome),
                None if self.read.is_closed() => Poll::Ready(Err(Error::Closed)),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Returns the segments that hold durable records, oldest first. No I/O.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        SegmentInfo::of(&self.read.segments, self.durable().0)
    }

    /// Returns whether `repair`, or an open with repair enabled, ever quarantined corrupt units of
    /// this log.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn was_repaired(&self) -> Result<bool> {
        let names = self.write.dir.list()?;
        Ok(names.iter().any(|name| name == crate::store::paths::QUARANTINE))
    }

    /// Returns what the log stores. No I/O.
    pub fn metadata(&self) -> Metadata {
        let (id, session) = (self.write.id, self.recovery().session);
        Metadata::new(&*self.read, id, session, self.read.cache.bytes())
    }

    /// Returns what this process did with the log since it opened it, and what is pending. No I/O.
    pub fn stats(&self) -> LogStats {
        let write = &*self.write;
        let (accepted, pending, records) = {
            let core = &write.lock().core;
            (core.last_seq(), core.pending_records(), core.written_records())
        };
        let Counts { commits, syncs, bytes } = write.counters.read();
        LogStats {
            commits,
            syncs,
            bytes,
            records,
            accepted: Seq(accepted),
            pending,
            waiting: write.waiters.len(),
            memory_bytes: write.tail.bytes(),
            disk: self.owner.disk_name,
            direct: write.mode.direct,
            dsync: write.mode.dsync,
        }
    }

    pub(super) fn refuse_if_closed(&self) -> Result<()> {
        self.read.refuse_if_closed()
    }
}
