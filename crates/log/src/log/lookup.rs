//! Reading single records, and the log's metadata.

use std::future::poll_fn;
use std::task::Poll;

use crate::base::error::{Error, Result};
use crate::base::position::{Position, Seq};
use crate::format::LogId;
use crate::log::Log;
use crate::read::batch::{Batch, View};
use crate::read::cursor::{self, Start};
use crate::read::stream::Stream;
use crate::runtime::counters::LogStats;
use crate::runtime::waiters::{For, Registered};

/// The state and statistics of a log, from memory alone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// The log's random id.
    pub id: LogId,
    /// The open session: the number of this writable open.
    pub session: u64,
    /// The number before the oldest stored record: records up to it were dropped or never existed.
    pub after: Seq,
    /// The number of the last durable record; 0 when there is none.
    pub durable: Seq,
    /// The number of the last accepted record.
    pub accepted: Seq,
    /// The position after the last durable record.
    pub position: Position,
    /// Stored records, including those in dropped parts of the oldest segment and in commits in
    /// flight.
    pub records: u64,
    /// Number of segments.
    pub segments: usize,
    /// Bytes written in segments, without space that is only reserved.
    pub disk_bytes: u64,
    /// Entries of the sparse index in memory; 24 bytes each.
    pub index_entries: usize,
    /// Bytes of memory in staging buffers and the tail cache, including buffers that only a
    /// reader's batch still references.
    pub memory_bytes: u64,
    /// Bytes of memory in the read cache.
    pub cold_bytes: u64,
    /// Records accepted but not yet durable.
    pub pending: u64,
    /// Waiting callers and streams.
    pub waiting: usize,
    /// The name of the disk implementation, such as `"std"`.
    pub disk: &'static str,
    /// Whether commits bypass the page cache.
    pub direct: bool,
    /// Whether a commit is one write that is durable by itself (O_DSYNC).
    pub dsync: bool,
    /// Counters since opening.
    pub activity: LogStats,
}

/// The records of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The number before its first record.
    pub after: Seq,
    /// The number of its last durable record.
    pub last: Seq,
    /// Bytes in it, including headers and padding.
    pub bytes: u64,
}

impl Log {
    /// Streams records from a start point on. Does no I/O until the first batch and uses almost no
    /// memory.
    ///
    /// # Errors
    /// [`Error::Trimmed`] when the start point was dropped, [`Error::Closed`].
    pub fn stream(&self, start: Start) -> Result<Stream> {
        Stream::new(&self.read, start)
    }

    /// Returns the record with this number. Unless the record is in memory, reads at most the bytes
    /// between two sparse index entries plus the record. Bytes that come from a file are checked.
    ///
    /// # Errors
    /// [`Error::NotFound`] when no durable record has this number, [`Error::Trimmed`],
    /// [`Error::Quarantined`], [`Error::Corrupted`], [`Error::Io`], [`Error::Closed`].
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
        let durable = self.durable().0;
        let span = |segment: std::sync::Arc<crate::store::segment_table::Segment>| {
            let state = segment.state.read();
            SegmentInfo {
                after: Seq(segment.header.prev_seq),
                last: Seq(state.last_seq.min(durable)),
                bytes: u64::from(state.end),
            }
        };
        let spans = self.read.segments.all().into_iter().map(span);
        spans.filter(|span| span.after < span.last).collect()
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

    /// Returns the state and statistics of the log. No I/O.
    pub fn metadata(&self) -> Metadata {
        let write = &*self.write;
        let segments = write.segments.all();
        let low = write.trim_point.low();
        let first = segments.first().and_then(|oldest| {
            let start = oldest.header.prev_seq == low.seq;
            oldest.state.read().index.first().filter(|_| start).map(|entry| entry.prev_seq)
        });
        let (accepted, pending, written) = {
            let core = &write.lock().core;
            (core.last_seq(), core.pending_records(), core.written_records())
        };
        let mut metadata = Metadata {
            id: write.id,
            session: self.recovery().session,
            after: Seq(first.unwrap_or(low.seq)),
            durable: self.durable(),
            accepted: Seq(accepted),
            position: Position(write.watermark.position()),
            records: 0,
            segments: segments.len(),
            disk_bytes: 0,
            index_entries: 0,
            memory_bytes: write.tail.bytes(),
            cold_bytes: self.read.cache.bytes(),
            pending,
            waiting: write.waiters.len(),
            disk: self.owner.disk_name,
            direct: write.mode.direct,
            dsync: write.mode.dsync,
            activity: write.counters.activity(written),
        };
        for segment in &segments {
            let state = segment.state.read();
            metadata.records += state.records;
            metadata.disk_bytes += u64::from(state.end);
            metadata.index_entries += state.index.len();
        }
        metadata
    }

    pub(super) fn refuse_if_closed(&self) -> Result<()> {
        self.read.refuse_if_closed()
    }
}
