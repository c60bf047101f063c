//! Reading a log that another process writes, or that no process has open.
//!
//! `snapshot` is the result of one directory scan and a cache of what was read since. `feed` reads
//! it in order for a stream. `poller` polls for the streams that wait. `metrics` is what a reader
//! says of itself. `app_snapshots` opens the snapshots of the application, and
//! `component_reads` has what only a component needs.

mod app_snapshots;
pub(crate) mod builder;
pub(crate) mod component_reads;
mod feed;
mod followed_log;
pub(crate) mod metrics;
mod poller;
mod snapshot;

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::Poll;

use esker_disk::process;
use parking_lot::{Mutex, RwLock};

use crate::base::error::{Corruption, Error, Result, register_process};
use crate::base::position::{Position, Seq};
use crate::base::read_options::ReadOptions;
use crate::consumers::Consumers;
use crate::read::batch::View;
use crate::read::cursor::{self, Start};
use crate::read::metadata::{Metadata, SegmentInfo, Stored};
use crate::read::source::Source;
use crate::read::stream::{LogStream, read_one};
use crate::read::stream_table::StreamTable;
use crate::runtime::detached::detached;
use crate::runtime::engine::Engine;
use crate::store::directory;
use feed::{FollowerFeed, Waiting};
use followed_log::FollowedLog;
use poller::{Depth, Polled};
use snapshot::Snapshot;

/// A read-only handle to a log, without its lock. Any number may be open beside one writer, in this
/// process or others.
///
/// It follows the directory that it opened, even if that is moved or replaced by another.
///
/// It reads durable records only. With a writer, it reads up to the writer's watermark page, which
/// has each record before it is acknowledged: opening a reader, or [`ReadOnlyLog::refresh`], after
/// an acknowledgement finds the record. Without one, it reads up to the higher of that watermark
/// and the highest durable lower bound in the log itself. It changes nothing on disk.
///
/// Cheap to clone; all clones are the same reader, and its streams share what they read.
///
/// It has no thread until a stream reads ahead or waits. Then it has up to three threads that read
/// (those of the engine, if the options name one) and one that polls. They end with the last of its
/// handles and streams, or with [`ReadOnlyLog::close`], after any read in progress. With a manual
/// engine there is no thread: a waiting stream polls when it is polled itself, and
/// [`ReadOnlyLog::refresh`] wakes it.
#[derive(Debug, Clone)]
pub struct ReadOnlyLog {
    log: Arc<FollowedLog>,
}

impl Drop for ReadOnlyLog {
    fn drop(&mut self) {
        if process::is_forked() {
            // Another thread may have been changing what this would free.
            std::mem::forget(Arc::clone(&self.log));
        }
    }
}

impl ReadOnlyLog {
    /// Opens the log in `dir` for reading, with the default options. [`ReadOnlyLog::builder`] sets
    /// others. In a child that `fork` makes, its calls fail with [`Error::Forked`].
    ///
    /// # Errors
    /// [`Error::NotALog`], [`Error::UnsupportedVersion`], [`Error::ForeignFile`],
    /// [`Error::Forked`], [`Error::Io`].
    /// Corruption is reported by the streams that reach it, and by [`ReadOnlyLog::corruption`].
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Log, ReadOnlyLog, Start};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("log");
    /// let writer = Log::open(&dir)?; // often in another process
    /// writer.append("a record")?.blocking_wait()?;
    ///
    /// let reader = ReadOnlyLog::open(&dir)?;
    /// let mut stream = reader.stream(Start::Oldest)?;
    /// for record in &stream.blocking_next()? {
    ///     assert_eq!(record.payload, b"a record");
    /// }
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir.as_ref(), ReadOptions::default())
    }

    /// As [`ReadOnlyLog::open`], without blocking: a thread of its own opens the log.
    ///
    /// # Cancel safety
    /// A call that is dropped opens the log and closes it again.
    ///
    /// # Errors
    /// As [`ReadOnlyLog::open`], and [`Error::NoThread`].
    pub async fn open_async(dir: impl AsRef<Path>) -> Result<Self> {
        Self::builder(dir).open_async().await
    }

    async fn open_with_async(dir: PathBuf, options: ReadOptions) -> Result<Self> {
        detached(move || Self::open_with(&dir, options)).await.map_err(Error::no_thread)?
    }

    fn open_with(dir: &Path, options: ReadOptions) -> Result<Self> {
        register_process(dir)?;
        options.validate()?;
        let dir = directory::open(dir, &*options.disk)?;
        let engine = options.engine.clone().unwrap_or_else(Engine::for_reads);
        let read_counts = Arc::default();
        let snapshot = Snapshot::rescan(&*dir, &options, &engine, &read_counts)?;
        let consumers = Consumers::new(Arc::clone(&dir), snapshot.manifest().log);
        Ok(Self {
            log: Arc::new(FollowedLog {
                dir,
                options,
                engine,
                snapshot: RwLock::new(snapshot),
                consumers,
                poll_lock: Mutex::default(),
                poller: Arc::default(),
                streams: StreamTable::default(),
                read_counts,
                polls: AtomicU64::new(0),
                scans: AtomicU64::new(1),
                closed: AtomicBool::new(false),
            }),
        })
    }

    /// Returns the options that the log was opened with.
    pub fn options(&self) -> &ReadOptions {
        &self.log.options
    }

    /// Polls how far the log is durable. Cheap while the same writer continues: one small read, and
    /// one more for each segment that the writer began.
    ///
    /// Waiting streams do not need this call: their reader polls by itself.
    ///
    /// # Errors
    /// As [`ReadOnlyLog::open`], and [`Error::Closed`].
    pub fn refresh(&self) -> Result<()> {
        self.log.refuse_if_closed()?;
        self.log.poll(Depth::Manifest).map(drop)
    }

    /// Streams records from `start`. The stream may outlive this handle.
    ///
    /// # Errors
    /// [`Error::Trimmed`] when the start was dropped, [`Error::Closed`].
    pub fn stream(&self, start: Start) -> Result<LogStream> {
        self.log.refuse_if_closed()?;
        Ok(LogStream::new(Box::new(FollowerFeed::new(&self.log, start)?.registered())))
    }

    /// Closes the reader and all of its streams. Waiting streams are woken with [`Error::Closed`].
    /// Its threads end.
    pub fn close(&self) {
        self.log.close();
    }

    /// Returns the record with this sequence number, durable as of the last poll. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// As [`Log::read`](crate::Log::read).
    pub fn read(&self, seq: impl Into<Seq>) -> Result<View> {
        let seq = seq.into();
        self.find(|snapshot| cursor::read(snapshot, seq))
    }

    /// As [`ReadOnlyLog::read`], without blocking: a thread of the reader reads up to a megabyte,
    /// which its streams share.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// As [`ReadOnlyLog::read`].
    pub async fn read_async(&self, seq: impl Into<Seq>) -> Result<View> {
        let seq = seq.into();
        self.log.refuse_if_closed()?;
        if seq == Seq::ZERO {
            return Err(Error::NotFound { seq });
        }
        read_one(FollowerFeed::new(&self.log, Start::From(seq))?, seq).await
    }

    /// Returns the record at a position taken from a ticket or a record, durable as of the last
    /// poll. Recovery may move the last records: then they are at other positions. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// As [`Log::read_at`](crate::Log::read_at).
    pub fn read_at(&self, position: Position) -> Result<View> {
        self.find(|snapshot| cursor::read_at(snapshot, position))
    }

    fn find(&self, find: impl Fn(&Snapshot) -> Result<View>) -> Result<View> {
        self.log.refuse_if_closed()?;
        match find(&self.log.snapshot()) {
            Err(Error::Corrupted(_) | Error::Trimmed { .. }) => {
                // A file may have been reused, or the last records may have been moved.
                self.log.poll(Depth::Rescan)?;
                let snapshot = self.log.snapshot();
                find(&snapshot).map_err(|error| cursor::exactly(&*snapshot, error))
            }
            other => other,
        }
    }

    /// Waits until a poll finds that everything up to this number is durable. Polls as a waiting
    /// stream does, and waits on while there is no writer.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Closed`], and those of [`ReadOnlyLog::open`] when the directory cannot be polled.
    ///
    /// # Examples
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// use esker_log::{Log, ReadOnlyLog};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("log");
    /// let writer = Log::open(&dir)?; // often in another process
    /// let reader = ReadOnlyLog::open(&dir)?;
    /// let ticket = writer.append("a record")?;
    /// let seq = ticket.seq();
    /// ticket.await?;
    /// reader.wait_durable(seq).await?;
    /// assert_eq!(&*reader.read_async(seq).await?, b"a record");
    /// # Ok::<(), esker_log::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn wait_durable(&self, seq: impl Into<Seq>) -> Result<()> {
        let seq = seq.into();
        let mut waiting = Waiting::new(&self.log);
        poll_fn(|cx| {
            for registered in [false, true] {
                self.log.refuse_if_closed()?;
                if self.durable() >= seq {
                    return Poll::Ready(Ok(()));
                }
                waiting.refuse_to_wait()?;
                if !registered {
                    waiting.begin(seq.0, cx.waker())?;
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Returns whether corrupt units of this log were ever quarantined; see
    /// [`Log::was_repaired`](crate::Log::was_repaired). Reads from the disk.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn was_repaired(&self) -> Result<bool> {
        directory::was_repaired(&*self.log.dir)
    }

    /// The last durable record as of the last poll.
    pub fn durable(&self) -> Seq {
        Seq(self.log.snapshot().limit().1)
    }

    /// The position after the last durable record as of the last poll.
    pub fn position(&self) -> Position {
        Position(self.log.snapshot().limit().0)
    }

    /// The oldest record stored, or the next one if the log has no records.
    pub fn oldest(&self) -> Seq {
        cursor::oldest(&*self.log.snapshot())
    }

    /// Valid-looking bytes after the last durable record, which only recovery may classify. With a
    /// concurrent writer these are its latest commits.
    pub fn unrecovered_bytes(&self) -> u64 {
        self.log.snapshot().unrecovered
    }

    /// The first corruption that the directory scan met, if any. The scan does not read segments
    /// that have a valid footer; [`verify`](crate::verify) reads everything.
    pub fn corruption(&self) -> Option<Corruption> {
        self.log.snapshot().corruption.clone()
    }

    /// Returns the segments that hold durable records, oldest first, with what was counted in them
    /// at the last scan, as for [`ReadOnlyLog::metadata`]. No I/O.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let snapshot = self.log.snapshot();
        SegmentInfo::of(snapshot.segments(), snapshot.limit().1)
    }

    /// Returns what the log stores, as of the last poll. No I/O.
    ///
    /// A poll that finds more records in the newest segment does not read them. The counts
    /// (records, bytes, entries of the index) are those of the last scan of the directory, at
    /// opening or when the writer began a segment or a session; [`ReadOnlyLog::stored`] reads them.
    pub fn metadata(&self) -> Metadata {
        let snapshot = self.log.snapshot();
        let manifest = snapshot.manifest();
        Metadata::new(&*snapshot, manifest.log, manifest.session, snapshot.cached_bytes())
    }

    /// Returns the named offsets of the log's consumers, which this process can change if it may
    /// write in the directory. No I/O.
    pub fn consumers(&self) -> Consumers {
        self.log.consumers.clone()
    }

    /// What can be read now, as a backup reads it. Scans the directory: a poll that finds more
    /// durable records does not read the trim point.
    pub(crate) fn source(&self) -> Result<Arc<dyn Source>> {
        self.log.refuse_if_closed()?;
        self.log.poll(Depth::Rescan)?;
        let snapshot = self.log.snapshot();
        match &snapshot.corruption {
            Some(corruption) => Err(Error::Corrupted(corruption.clone())),
            None => Ok(snapshot),
        }
    }

    /// The directory that was opened.
    pub(crate) fn dir(&self) -> &dyn esker_disk::Dir {
        &*self.log.dir
    }

    /// Returns what is stored. Reads the newest segment where the last poll found more in it than
    /// was counted, the dropped part of the oldest segment, to count its records, and the headers
    /// of units in segments that may have a gap.
    ///
    /// # Errors
    /// [`Error::Corrupted`] where such a header is corrupt, [`Error::Io`], [`Error::Closed`].
    pub fn stored(&self) -> Result<Stored> {
        self.log.refuse_if_closed()?;
        let snapshot = self.log.snapshot();
        let newest = snapshot.segments().all().pop();
        if newest.is_none_or(|newest| newest.state.read().last_seq < snapshot.limit().1) {
            self.log.poll(Depth::Rescan)?;
        }
        match Stored::new(&*self.log.snapshot()) {
            Err(Error::Corrupted(_)) => {
                // As in `read`.
                self.log.poll(Depth::Rescan)?;
                Stored::new(&*self.log.snapshot())
            }
            other => other,
        }
    }

    /// Whether the log was closed cleanly as of the last poll.
    pub fn is_closed_cleanly(&self) -> bool {
        self.log.snapshot().manifest().clean.is_some()
    }
}
