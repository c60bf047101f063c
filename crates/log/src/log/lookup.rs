//! Single records, and what a log can say about itself.

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

/// What a log holds and does, from memory alone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// The log's own random number.
    pub id: LogId,
    /// The number of this opening for writing.
    pub session: u64,
    /// Records at or below this number were dropped, or there were none.
    pub after: Seq,
    /// The last durable record; 0 when there is none.
    pub durable: Seq,
    /// The last accepted record.
    pub accepted: Seq,
    /// The position behind the last durable record.
    pub position: Position,
    /// Records stored, those in dropped parts of the oldest segment and in commits in flight included.
    pub records: u64,
    /// Segments.
    pub segments: usize,
    /// Bytes in them, without what is only reserved.
    pub disk_bytes: u64,
    /// Entries of the sparse index in memory; 24 bytes each.
    pub index_entries: usize,
    /// Bytes of memory in staging buffers and the tail cache, also where only a batch that a reader
    /// keeps still holds them.
    pub memory_bytes: u64,
    /// Bytes of memory in what was read from files and is kept for other readers.
    pub cold_bytes: u64,
    /// Records accepted and not durable.
    pub pending: u64,
    /// Callers and streams that wait.
    pub waiting: usize,
    /// `"std"`, or another disk's name.
    pub disk: &'static str,
    /// Commits go past the page cache.
    pub direct: bool,
    /// A commit is one write, durable by itself.
    pub dsync: bool,
    /// What was done since opening.
    pub activity: LogStats,
}

/// The records of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The number before its first record.
    pub after: Seq,
    /// Its last durable record.
    pub last: Seq,
    /// Bytes in it, headers and padding included.
    pub bytes: u64,
}

impl Log {
    /// Reads from a place on. Costs no I/O until the first batch, and no memory to speak of.
    ///
    /// # Errors
    /// [`Error::Trimmed`] when the place was dropped, [`Error::Closed`].
    pub fn stream(&self, start: Start) -> Result<Stream> {
        Stream::new(&self.read, start)
    }

    /// The record with this number. Reads at most one piece of the index's density, plus the record,
    /// unless it is in memory. Its bytes are checked when they come from a file.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a number that no durable record has, [`Error::Trimmed`],
    /// [`Error::Quarantined`], [`Error::Corrupted`], [`Error::Io`], [`Error::Closed`].
    pub fn read(&self, seq: impl Into<Seq>) -> Result<View> {
        self.refuse_if_closed()?;
        let source = &*self.read;
        cursor::read(source, seq.into()).map_err(|error| cursor::exactly(source, error))
    }

    /// The record at a position that a ticket or a record told.
    ///
    /// # Errors
    /// [`Error::InvalidPosition`] when no durable record starts there, and as [`Log::read`].
    pub fn read_at(&self, position: Position) -> Result<View> {
        self.refuse_if_closed()?;
        let source = &*self.read;
        cursor::read_at(source, position).map_err(|error| cursor::exactly(source, error))
    }

    /// The records that are accepted and not durable yet, in order: what every other way of reading
    /// keeps back. A crash may take them. Under [`Policy::OsBuffered`](crate::Policy::OsBuffered) these
    /// are the records that the system was not given yet.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn accepted_tail(&self) -> Result<Vec<Batch>> {
        self.refuse_if_closed()?;
        let state = self.write.lock();
        let staged: Vec<_> = state.core.staged().collect();
        // No place is given while the lock is held, so that the appenders who still copy come to an
        // end; they do not need the lock.
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

    /// The number of the last durable record, without I/O; `None` when there never was one.
    pub fn last(&self) -> Option<Seq> {
        let seq = self.durable();
        (seq > Seq::ZERO).then_some(seq)
    }

    /// The number of the oldest record stored, or of the next one in a log without any.
    pub fn oldest(&self) -> Seq {
        cursor::oldest(&*self.read)
    }

    /// The durable watermark: everything at or below it survives power loss. 0 when there is
    /// nothing.
    #[inline]
    pub fn durable(&self) -> Seq {
        Seq(self.read.watermark.seq())
    }

    /// The number of the last accepted record; 0 when there is none.
    pub fn accepted(&self) -> Seq {
        Seq(self.write.lock().core.last_seq())
    }

    /// Waits until the durable watermark is at or above a number. Asks for no commit.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// The reason why the log takes no more records, when it came first.
    pub async fn wait_durable(&self, seq: impl Into<Seq>) -> Result<()> {
        let seq = seq.into().0;
        let mut place = Registered::new(&self.write.waiters);
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

    /// The segments, oldest first, as far as they hold durable records. No I/O.
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

    /// Whether `repair`, or an opening that was told to, ever put damaged units of this log aside.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn was_repaired(&self) -> Result<bool> {
        let names = self.write.dir.list()?;
        Ok(names.iter().any(|name| name == crate::store::paths::QUARANTINE))
    }

    /// What the log holds and does. No I/O.
    pub fn metadata(&self) -> Metadata {
        let shared = &*self.write;
        let segments = shared.segments.all();
        let low = shared.trim_point.low();
        let first = segments.first().and_then(|oldest| {
            let start = oldest.header.prev_seq == low.seq;
            oldest.state.read().index.first().filter(|_| start).map(|entry| entry.prev_seq)
        });
        let (accepted, pending, written) = {
            let core = &shared.lock().core;
            (core.last_seq(), core.pending_records(), core.written_records())
        };
        let mut metadata = Metadata {
            id: shared.id,
            session: self.recovery().session,
            after: Seq(first.unwrap_or(low.seq)),
            durable: self.durable(),
            accepted: Seq(accepted),
            position: Position(shared.watermark.position()),
            records: 0,
            segments: segments.len(),
            disk_bytes: 0,
            index_entries: 0,
            memory_bytes: shared.tail.bytes(),
            cold_bytes: self.read.cache.bytes(),
            pending,
            waiting: shared.waiters.len(),
            disk: self.owner.disk_name,
            direct: shared.mode.direct,
            dsync: shared.mode.dsync,
            activity: shared.counters.activity(written),
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
