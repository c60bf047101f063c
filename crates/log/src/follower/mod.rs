//! Reading a log that another process writes, or that nobody has open.
//!
//! `snapshot` is one look at the directory, and what was read of it; `stream` goes through it in order;
//! `watch` looks again for those who wait.

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

/// A log open for reading, without its lock. Several may read beside one writer, in this process or
/// others.
///
/// It follows the directory that it opened, also when somebody moves that or puts another in its place.
///
/// It sees what is durable: with a writer, up to the mark that the writer keeps; without one, up to
/// the higher of that mark and the highest claim in the log itself. It changes nothing on disk.
///
/// Cheap to clone; all clones are the same reader, and its streams share what they read. It has no thread
/// until a stream reads ahead or waits: then up to three that read (those of the engine, where the options
/// name one) and one that looks. They end with the last of its handles and streams, or with
/// [`Reader::close`]; a read under way is ended first. With a manual engine there is no thread at all: a
/// stream that waits looks by itself when it is polled, and is woken by [`Reader::refresh`].
#[derive(Debug, Clone)]
pub struct Reader {
    follow: Arc<Follow>,
}

impl Reader {
    /// Opens the log in `dir` for reading.
    ///
    /// # Errors
    /// [`Error::NotALog`], [`Error::UnsupportedVersion`], [`Error::ForeignFile`], [`Error::Io`]. Corruption is told by
    /// the streams that come to it, and by [`Reader::damage`].
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

    /// Looks how far the log is durable now. Cheap while the same writer goes on: one small read,
    /// and one more when the writer began a segment.
    ///
    /// Streams that wait need no call of this: their reader looks by itself.
    ///
    /// # Errors
    /// As [`Reader::open`], and [`Error::Closed`].
    pub fn refresh(&self) -> Result<()> {
        self.follow.refuse_if_closed()?;
        self.follow.look(Depth::Facts).map(drop)
    }

    /// Reads from a place on. A stream lives as long as it is wanted, also without this handle.
    ///
    /// # Errors
    /// [`Error::Trimmed`] when the place was dropped, [`Error::Closed`].
    pub fn stream(&self, start: Start) -> Result<ReaderStream> {
        self.follow.refuse_if_closed()?;
        ReaderStream::new(&self.follow, start)
    }

    /// Ends the reader and all of its streams, whoever holds them: those who wait are woken, and get
    /// [`Error::Closed`]. Its threads end.
    pub fn close(&self) {
        self.follow.close();
    }

    /// The record with this number.
    ///
    /// # Errors
    /// As [`Log::read`](crate::Log::read).
    pub fn read(&self, seq: impl Into<Seq>) -> Result<View> {
        let seq = seq.into();
        match cursor::read(&*self.follow.snapshot(), seq) {
            Err(Error::Corrupted(_) | Error::Trimmed { .. }) => {
                // A file may have been used again, or its last records moved.
                self.follow.look(Depth::Everything)?;
                let snapshot = self.follow.snapshot();
                cursor::read(&*snapshot, seq).map_err(|error| cursor::exactly(&*snapshot, error))
            }
            other => other,
        }
    }

    /// The last durable record, at the last look.
    pub fn durable(&self) -> Seq {
        Seq(self.follow.snapshot().limit().1)
    }

    /// The position behind the last durable record, at the last look.
    pub fn position(&self) -> Position {
        Position(self.follow.snapshot().limit().0)
    }

    /// The oldest record stored, or the next one in a log without any.
    pub fn oldest(&self) -> Seq {
        cursor::oldest(&*self.follow.snapshot())
    }

    /// Bytes behind the last durable record that look sound, and that only recovery may judge. With
    /// a writer at work these are its latest commits.
    pub fn unrecovered_bytes(&self) -> u64 {
        self.follow.snapshot().unrecovered
    }

    /// The first damage that the look at the directory met, where it met any. Segments that a
    /// footer vouches for are not read by that; [`verify`](crate::verify) reads everything.
    pub fn damage(&self) -> Option<Corruption> {
        self.follow.snapshot().damage.clone()
    }

    /// The number of segments.
    pub fn segments(&self) -> usize {
        self.follow.snapshot().segments().len()
    }

    /// Records that can be read, and bytes of segments, at the time of opening. Reads the part of the
    /// oldest segment that was truncated, to count what is in it.
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

    /// Bytes of memory in what was read from the files and is kept for other streams.
    pub fn cold_bytes(&self) -> u64 {
        self.follow.snapshot().cold_bytes()
    }

    /// Whether the log was closed cleanly when it was last looked at.
    pub fn is_closed_cleanly(&self) -> bool {
        self.follow.snapshot().manifest().clean.is_some()
    }

    /// The log's number, and its session.
    pub fn identity(&self) -> (crate::format::LogId, u64) {
        let manifest = self.follow.snapshot().manifest();
        (manifest.log, manifest.session)
    }
}
