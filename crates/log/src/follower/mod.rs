//! Reading a log that another process writes, or that no process has open.
//!
//! `scan_snapshot` is the result of one directory scan and a cache of what was read since.
//! `follower_feed` reads it in order for a stream. `poller` polls for the streams that wait.
//! `reader_metrics` is what a reader says of itself. `reader_snapshots`, `reader_storage` and
//! `component_reads` are groups of methods.

pub(crate) mod component_reads;
mod followed_log;
mod follower_feed;
mod poller;
pub(crate) mod reader_builder;
pub(crate) mod reader_metrics;
pub(crate) mod reader_snapshots;
pub(crate) mod reader_storage;
mod scan_snapshot;

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::Poll;

use esker_disk::process;
use parking_lot::{Mutex, RwLock};

use crate::base::error::{Error, Result, register_process};
use crate::base::log_error::LogError;
use crate::base::operation_errors::{OpenError, ReadError};
use crate::base::position::{Position, Seq};
use crate::base::read_options::ReadOptions;
use crate::consumers::Consumers;
use crate::read::batch::View;
use crate::read::cursor::{self, Start};
use crate::read::source::Source;
use crate::read::stream::{LogStream, read_one};
use crate::read::stream_table::StreamTable;
use crate::runtime::detached::detached;
use crate::runtime::engine::Engine;
use crate::store::directory;
use followed_log::FollowedLog;
use follower_feed::{FollowerFeed, PollWait};
use poller::{Depth, PolledLog};
use scan_snapshot::Snapshot;

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
    /// others. In a child that `fork` makes, its calls fail with [`LogError::Forked`].
    ///
    /// # Errors
    /// [`OpenError::NotALog`], [`OpenError::UnsupportedVersion`], [`OpenError::ForeignFile`],
    /// [`LogError::Forked`], [`LogError::Io`]. Corruption is reported by the streams that reach it,
    /// and by [`ReadOnlyStorage::corruption`](crate::ReadOnlyStorage).
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
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(dir.as_ref(), ReadOptions::default())
    }

    async fn open_with_async(dir: PathBuf, options: ReadOptions) -> Result<Self, OpenError> {
        detached(move || Self::open_with(&dir, options)).await.map_err(LogError::no_thread)?
    }

    fn open_with(dir: &Path, options: ReadOptions) -> Result<Self, OpenError> {
        Self::scan(dir, options).map_err(OpenError::narrow)
    }

    fn scan(dir: &Path, options: ReadOptions) -> Result<Self> {
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
    /// As [`ReadOnlyLog::open`], and [`LogError::Closed`].
    pub fn refresh(&self) -> Result<(), OpenError> {
        self.log.refuse_if_closed()?;
        self.log.poll(Depth::Manifest).map(drop).map_err(OpenError::narrow)
    }

    /// Streams records from `start`. The stream may outlive this handle.
    ///
    /// # Errors
    /// [`ReadError::Trimmed`] when the start was dropped, [`LogError::Closed`].
    pub fn stream(&self, start: Start) -> Result<LogStream, ReadError> {
        self.log.refuse_if_closed()?;
        let feed = FollowerFeed::new(&self.log, start).map_err(ReadError::narrow)?;
        Ok(LogStream::new(Box::new(feed.registered())))
    }

    /// Closes the reader and all of its streams. Waiting streams are woken with
    /// [`LogError::Closed`]. Its threads end.
    pub fn close(&self) {
        self.log.close();
    }

    /// Returns the record with this sequence number, durable as of the last poll. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// As [`Log::read`](crate::Log::read).
    pub fn read(&self, seq: impl Into<Seq>) -> Result<View, ReadError> {
        let seq = seq.into();
        self.find(|snapshot| cursor::read(snapshot, seq)).map_err(ReadError::narrow)
    }

    /// As [`ReadOnlyLog::read`], without blocking: a thread of the reader reads up to a megabyte,
    /// which its streams share.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// As [`ReadOnlyLog::read`].
    pub async fn read_async(&self, seq: impl Into<Seq>) -> Result<View, ReadError> {
        let seq = seq.into();
        self.log.refuse_if_closed()?;
        if seq == Seq::ZERO {
            return Err(ReadError::NotFound { seq });
        }
        let feed = FollowerFeed::new(&self.log, Start::From(seq)).map_err(ReadError::narrow)?;
        read_one(feed, seq).await
    }

    /// Returns the record at a position taken from a ticket or a record, durable as of the last
    /// poll. Recovery may move the last records: then they are at other positions. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// As [`Log::read_at`](crate::Log::read_at).
    pub fn read_at(&self, position: Position) -> Result<View, ReadError> {
        self.find(|snapshot| cursor::read_at(snapshot, position)).map_err(ReadError::narrow)
    }

    fn find(&self, find: impl Fn(&Snapshot) -> Result<View>) -> Result<View> {
        self.log.refuse_if_closed()?;
        match find(&self.log.snapshot()) {
            Err(Error::Corrupted(_) | Error::Trimmed(_)) => {
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
    /// [`LogError::Closed`], and those of [`ReadOnlyLog::open`] when the directory cannot be
    /// polled.
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
    pub async fn wait_durable(&self, seq: impl Into<Seq>) -> Result<(), OpenError> {
        self.until_durable(seq.into()).await.map_err(OpenError::narrow)
    }

    async fn until_durable(&self, seq: Seq) -> Result<()> {
        let mut waiting = PollWait::new(&self.log);
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

    /// Returns the named offsets of the log's consumers, which this process can change if it may
    /// write in the directory. No I/O.
    pub fn consumers(&self) -> Consumers {
        self.log.consumers.clone()
    }

    /// Returns the records that can be read now, as a backup reads them. Scans the directory: a
    /// poll that finds more durable records does not read the trim point.
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
}
