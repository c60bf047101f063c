//! Reading a log that another process writes, or that no process has open.
//!
//! `snapshot` is the result of one directory scan and a cache of what was read since. `stream`
//! reads it in order. `poller` polls for the streams that wait.

mod follow;
mod poller;
mod snapshot;
mod stream;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};

use crate::base::error::{Corruption, Error, Result};
use crate::base::options::Options;
use crate::base::position::{Position, Seq};
use crate::read::batch::View;
use crate::read::cursor::{self, Start};
use crate::read::source::Source;
use crate::runtime::engine::Engine;
use crate::store::directory;
use follow::Follow;
use poller::{Depth, Watched};
use snapshot::Snapshot;

pub use stream::ReaderStream;

/// A read-only handle to a log, without its lock. Several readers may run beside one writer, in
/// this process or others.
///
/// It follows the directory that it opened, even if that is moved or replaced by another.
///
/// It reads durable records only. With a writer, it reads up to the writer's watermark page.
/// Without one, it reads up to the higher of that watermark and the highest durable lower bound in
/// the log itself. It changes nothing on disk.
///
/// Cheap to clone; all clones are the same reader, and its streams share what they read.
///
/// It has no thread until a stream reads ahead or waits. Then it has up to three threads that read
/// (those of the engine, if the options name one) and one that polls. They end with the last of its
/// handles and streams, or with [`Reader::close`], after any read in progress. With a manual engine
/// there is no thread: a waiting stream polls when it is polled itself, and [`Reader::refresh`]
/// wakes it.
#[derive(Debug, Clone)]
pub struct Reader {
    follow: Arc<Follow>,
}

impl Reader {
    /// Opens the log in `dir` for reading.
    ///
    /// # Errors
    /// [`Error::NotALog`], [`Error::UnsupportedVersion`], [`Error::ForeignFile`], [`Error::Io`].
    /// Corruption is reported by the streams that reach it, and by [`Reader::damage`].
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        let dir = directory::open(dir.as_ref(), &options)?;
        let engine = options.engine.clone().unwrap_or_else(Engine::for_reads);
        let snapshot = RwLock::new(Snapshot::look_again(&*dir, &options, &engine)?);
        Ok(Self {
            follow: Arc::new(Follow {
                dir,
                options,
                engine,
                snapshot,
                looking: Mutex::default(),
                watch: Arc::default(),
                closed: AtomicBool::new(false),
            }),
        })
    }

    /// Polls how far the log is durable. Cheap while the same writer continues: one small read, and
    /// one more for each segment that the writer began.
    ///
    /// Waiting streams do not need this call: their reader polls by itself.
    ///
    /// # Errors
    /// As [`Reader::open`], and [`Error::Closed`].
    pub fn refresh(&self) -> Result<()> {
        self.follow.refuse_if_closed()?;
        self.follow.look(Depth::Facts).map(drop)
    }

    /// Streams records from `start`. The stream may outlive this handle.
    ///
    /// # Errors
    /// [`Error::Trimmed`] when the start was dropped, [`Error::Closed`].
    pub fn stream(&self, start: Start) -> Result<ReaderStream> {
        self.follow.refuse_if_closed()?;
        ReaderStream::new(&self.follow, start)
    }

    /// Closes the reader and all of its streams. Waiting streams are woken with [`Error::Closed`].
    /// Its threads end.
    pub fn close(&self) {
        self.follow.close();
    }

    /// Returns the record with this sequence number.
    ///
    /// # Errors
    /// As [`Log::read`](crate::Log::read).
    pub fn read(&self, seq: impl Into<Seq>) -> Result<View> {
        let seq = seq.into();
        match cursor::read(&*self.follow.snapshot(), seq) {
            Err(Error::Corrupted(_) | Error::Trimmed { .. }) => {
                // A file may have been reused, or the last records may have been moved.
                self.follow.look(Depth::Everything)?;
                let snapshot = self.follow.snapshot();
                cursor::read(&*snapshot, seq).map_err(|error| cursor::exactly(&*snapshot, error))
            }
            other => other,
        }
    }

    /// The last durable record as of the last poll.
    pub fn durable(&self) -> Seq {
        Seq(self.follow.snapshot().limit().1)
    }

    /// The position after the last durable record as of the last poll.
    pub fn position(&self) -> Position {
        Position(self.follow.snapshot().limit().0)
    }

    /// The oldest record stored, or the next one if the log has no records.
    pub fn oldest(&self) -> Seq {
        cursor::oldest(&*self.follow.snapshot())
    }

    /// Valid-looking bytes after the last durable record, which only recovery may classify. With a
    /// concurrent writer these are its latest commits.
    pub fn unrecovered_bytes(&self) -> u64 {
        self.follow.snapshot().unrecovered
    }

    /// The first corruption that the directory scan met, if any. The scan does not read segments
    /// that have a valid footer; [`verify`](crate::verify) reads everything.
    pub fn damage(&self) -> Option<Corruption> {
        self.follow.snapshot().damage.clone()
    }

    /// The number of segments.
    pub fn segments(&self) -> usize {
        self.follow.snapshot().segments().len()
    }

    /// The number of readable records, and the bytes of segments, at the time of opening. Reads the
    /// truncated part of the oldest segment to count its records.
    pub fn stored(&self) -> (u64, u64) {
        let snapshot = self.follow.snapshot();
        let trim = snapshot.low().seq;
        snapshot.segments().all().iter().fold((0, 0), |(records, bytes), segment| {
            let (stored, end, last) = {
                let state = segment.state.read();
                (state.records, state.end, state.last_seq)
            };
            let dropped = if last <= trim { stored } else { segment.records_up_to(trim) };
            (records + stored.saturating_sub(dropped), bytes + u64::from(end))
        })
    }

    /// Bytes of memory in the cache of data read from the files.
    pub fn cold_bytes(&self) -> u64 {
        self.follow.snapshot().cold_bytes()
    }

    /// Whether the log was closed cleanly as of the last poll.
    pub fn is_closed_cleanly(&self) -> bool {
        self.follow.snapshot().manifest().clean.is_some()
    }

    /// The log's id and its session.
    pub fn identity(&self) -> (crate::format::LogId, u64) {
        let manifest = self.follow.snapshot().manifest();
        (manifest.log, manifest.session)
    }
}
