//! Reading a log that another process writes, or that nobody has open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::Open;
use parking_lot::{Mutex, RwLock};

use crate::batch::{Batch, View};
use crate::cursor::{self, Cursor, Source, Start};
use crate::error::{Damage, Error, Result};
use crate::floor::{Floor, Low};
use crate::format::BLOCK;
use crate::layout;
use crate::manifest::Manifest;
use crate::mark::Look;
use crate::options::{Direct, Options};
use crate::position::{Position, Seq};
use crate::recovery::{read_head, survey};
use crate::segments::{Segment, Segments, State};
use crate::window::Window;

/// How often a survey is tried again while a writer changes the directory under it.
const TRIES: usize = 8;

/// A log open for reading, without its lock. Several may read beside one writer, in this process or
/// others.
///
/// It sees what is durable: with a writer, up to the mark that the writer keeps; without one, up to
/// the higher of that mark and the highest claim in the log itself. It changes nothing on disk.
#[derive(Debug, Clone)]
pub struct Reader {
    follow: Arc<Follow>,
}

#[derive(Debug)]
struct Follow {
    dir: PathBuf,
    options: Options,
    /// Everything that one look at the directory found. Replaced as a whole.
    seen: RwLock<Arc<Seen>>,
    /// Held while looking again.
    looking: Mutex<()>,
}

/// One look at the directory.
#[derive(Debug)]
struct Seen {
    manifest: Manifest,
    look: Option<Look>,
    segments: Segments,
    floor: Floor,
    /// Position and number.
    limit: RwLock<(u64, u64)>,
    /// Bytes of sound units that nothing vouches for.
    unrecovered: u64,
    damage: Option<Damage>,
}

impl Source for Seen {
    fn limit(&self) -> (u64, u64) {
        *self.limit.read()
    }

    fn low(&self) -> Low {
        self.floor.low()
    }

    fn segments(&self) -> &Segments {
        &self.segments
    }

    fn window(&self, _: u64, _: u32) -> Option<(Arc<Window>, u32)> {
        None
    }
}

impl Reader {
    /// Opens the log in `dir` for reading.
    ///
    /// # Errors
    /// [`Error::NotALog`], [`Error::Version`], [`Error::Foreign`], [`Error::Io`]. Damage is told by
    /// the streams that come to it, and by [`Reader::damage`].
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        let dir = dir.as_ref().to_path_buf();
        let seen = Seen::look_again(&dir, &options)?;
        let seen = RwLock::new(Arc::new(seen));
        Ok(Self { follow: Arc::new(Follow { dir, options, seen, looking: Mutex::default() }) })
    }

    /// Looks how far the log is durable now. Cheap while the same writer goes on: one small read,
    /// and one more when the writer began a segment.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn refresh(&self) -> Result<()> {
        self.follow.refresh()
    }

    /// Reads from a place on.
    ///
    /// # Errors
    /// [`Error::Trimmed`] when the place was dropped.
    pub fn stream(&self, start: Start) -> Result<ReaderStream> {
        let seen = self.follow.seen();
        let cursor = Cursor::new(&*seen, start)?;
        let last = match start {
            Start::Tip => seen.limit().1,
            Start::Oldest => seen.low().seq,
            Start::After(seq) => seq.0,
            Start::From(seq) => seq.0.saturating_sub(1),
        };
        Ok(ReaderStream { follow: Arc::clone(&self.follow), seen, cursor, last })
    }

    /// The record with this number.
    ///
    /// # Errors
    /// As [`Log::read`](crate::Log::read).
    pub fn read(&self, seq: impl Into<Seq>) -> Result<View> {
        let seq = seq.into();
        match cursor::read(&*self.follow.seen(), seq) {
            Err(Error::Damaged(_) | Error::Trimmed { .. }) => {
                // A file may have been used again, or its last records moved.
                self.follow.look_at_everything()?;
                let seen = self.follow.seen();
                cursor::read(&*seen, seq).map_err(|error| cursor::exactly(&*seen, error))
            }
            other => other,
        }
    }

    /// The last durable record, at the last look.
    pub fn durable(&self) -> Seq {
        Seq(self.follow.seen().limit().1)
    }

    /// The position behind the last durable record, at the last look.
    pub fn position(&self) -> Position {
        Position(self.follow.seen().limit().0)
    }

    /// The oldest record stored, or the next one in a log without any.
    pub fn oldest(&self) -> Seq {
        cursor::oldest(&*self.follow.seen())
    }

    /// Bytes behind the last durable record that look sound, and that only recovery may judge. With
    /// a writer at work these are its latest commits.
    pub fn unrecovered_bytes(&self) -> u64 {
        self.follow.seen().unrecovered
    }

    /// The first damage that the look at the directory met, where it met any. Segments that a
    /// footer vouches for are not read by that; [`verify`](crate::verify) reads everything.
    pub fn damage(&self) -> Option<Damage> {
        self.follow.seen().damage.clone()
    }

    /// The number of segments.
    pub fn segments(&self) -> usize {
        self.follow.seen().segments.len()
    }

    /// Records stored, and bytes of segments, at the time of opening.
    pub fn stored(&self) -> (u64, u64) {
        let all = self.follow.seen().segments.all();
        all.iter().fold((0, 0), |(records, bytes), segment| {
            let state = segment.state.read();
            (records + state.records, bytes + u64::from(state.end))
        })
    }

    /// Whether the log was closed cleanly when it was last looked at.
    pub fn is_closed_cleanly(&self) -> bool {
        self.follow.seen().manifest.clean.is_some()
    }

    /// The log's number, and its session.
    pub fn identity(&self) -> (crate::LogId, u64) {
        let manifest = self.follow.seen().manifest;
        (manifest.log, manifest.session)
    }
}

impl Seen {
    /// Looks at the whole directory. A writer may change it meanwhile; then again, until two looks
    /// meet the same damage.
    fn look_again(dir: &Path, options: &Options) -> Result<Self> {
        let mut outcome = Self::look(dir, options);
        for _ in 1..TRIES {
            match &outcome {
                Ok(seen) if seen.damage.is_none() => break,
                Err(Error::NotALog { .. } | Error::Version { .. } | Error::Foreign { .. }) => break,
                _ => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    let again = Self::look(dir, options);
                    let same = match (&outcome, &again) {
                        (Ok(before), Ok(now)) => before.is_like(now),
                        _ => false,
                    };
                    outcome = again;
                    if same {
                        break;
                    }
                }
            }
        }
        outcome
    }

    /// Whether another look saw the same damage, and no writer did anything between the two.
    fn is_like(&self, other: &Self) -> bool {
        self.manifest == other.manifest
            && self.damage == other.damage
            && self.limit() == other.limit()
    }

    fn look(dir: &Path, options: &Options) -> Result<Self> {
        let disk = &*options.disk;
        let manifest = Manifest::of_log(disk, dir)?;
        let look = Look::open(disk, dir, manifest.log)?;
        let direct = options.direct != Direct::Off && reads_directly(dir, options);
        let before = look.as_ref().and_then(|look| look.told().ok().flatten());
        let mut survey = survey(dir, options, manifest, direct)?;
        let after = look.as_ref().and_then(|look| look.told().ok().flatten());
        let (position, seq, unrecovered) = survey.durable_end();
        // A writer that commits meanwhile makes claims that the look came too early for. What was
        // durable at its beginning is there.
        if before != after && before.is_some_and(|before| before.seq <= seq) {
            survey.damage = None;
        }
        let segments =
            Segments::new(survey.live.iter().map(|live| Arc::clone(&live.segment)).collect());
        Ok(Self {
            floor: Floor::new(&segments, manifest.floor_seq),
            manifest,
            look,
            segments,
            limit: RwLock::new((position, seq)),
            unrecovered,
            damage: survey.damage,
        })
    }

    /// Follows the mark of the writer; `false` when only a new look at everything can tell.
    fn follow_mark(&self, dir: &Path, options: &Options) -> Result<bool> {
        let Some(told) = self.look.as_ref().and_then(|look| look.told().ok().flatten()) else {
            return Ok(false);
        };
        if told.session != self.manifest.session || self.damage.is_some() {
            return Ok(false);
        }
        if told.seq <= self.limit().1 {
            // The writer may have closed the log, or dropped records.
            let now = Manifest::read(&*options.disk, dir)?;
            return Ok(now.is_some_and(|manifest| manifest == self.manifest));
        }
        while let Some(newest) = self.segments.newest().filter(|n| n.number() < told.segment) {
            match next_segment(dir, options, &self.manifest, &newest)? {
                Some(next) => self.segments.push(next),
                // It left the log before it was looked at, or has another name.
                None => return Ok(false),
            }
        }
        *self.limit.write() = (told.position, told.seq);
        Ok(true)
    }
}

/// Whether files of the log can be read past the page cache, found out by doing it.
fn reads_directly(dir: &Path, options: &Options) -> bool {
    let direct = options.disk.open(&dir.join(layout::MANIFEST), Open::read().direct(true));
    direct.is_ok_and(|file| {
        let mut block = esker_disk::AlignedBuf::new(BLOCK as usize);
        file.read_at(&mut block, 0).is_ok()
    })
}

/// The segment behind the newest one known, if the writer has begun it.
fn next_segment(
    dir: &Path,
    options: &Options,
    manifest: &Manifest,
    newest: &Segment,
) -> Result<Option<Arc<Segment>>> {
    let number = newest.number() + 1;
    let path = layout::segment(dir, number);
    let direct = options.direct != Direct::Off && reads_directly(dir, options);
    let reader = match options.disk.open(&path, Open::read().direct(direct)) {
        Ok(reader) => reader,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause.into()),
    };
    let Ok((header, header_crc)) = read_head(&*reader, manifest, number)? else {
        return Ok(None);
    };
    if header.prev_segment != newest.number() {
        return Ok(None);
    }
    Ok(Some(Arc::new(Segment {
        salt: header.salt(),
        state: RwLock::new(State { last_seq: header.prev_seq, ..State::default() }),
        header,
        header_crc,
        path,
        reader,
    })))
}

impl Follow {
    fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen.read())
    }

    fn refresh(&self) -> Result<()> {
        let _looking = self.looking.lock();
        if self.seen().follow_mark(&self.dir, &self.options)? {
            return Ok(());
        }
        self.replace_seen()
    }

    fn look_at_everything(&self) -> Result<()> {
        let _looking = self.looking.lock();
        self.replace_seen()
    }

    fn replace_seen(&self) -> Result<()> {
        let seen = Arc::new(Seen::look_again(&self.dir, &self.options)?);
        *self.seen.write() = seen;
        Ok(())
    }
}

/// Durable records of a log that another process may be writing, in order, in batches.
#[derive(Debug)]
pub struct ReaderStream {
    follow: Arc<Follow>,
    seen: Arc<Seen>,
    cursor: Cursor,
    last: u64,
}

impl ReaderStream {
    /// The next batch; `None` at the durable mark of the last look. Call [`Reader::refresh`] to look
    /// again.
    ///
    /// # Errors
    /// [`Error::Trimmed`]; [`Error::Quarantined`] once for each gap, behind which the stream goes
    /// on; [`Error::Damaged`] when everything before the damage was delivered; [`Error::Io`].
    pub fn try_next(&mut self) -> Result<Option<Batch>> {
        let mut looks = 0;
        loop {
            let error = match self.next_seen() {
                Err(error @ (Error::Damaged(_) | Error::Trimmed { .. })) => error,
                other => return other,
            };
            if self.last < self.follow.seen().low().seq {
                return Err(cursor::exactly(&*self.follow.seen(), error));
            }
            // A writer that recovers moves the last records under a reader. Damage is what a new look
            // at everything finds again.
            looks += 1;
            if looks > TRIES {
                return Err(error);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.follow.look_at_everything()?;
        }
    }

    fn next_seen(&mut self) -> Result<Option<Batch>> {
        let now = self.follow.seen();
        if !Arc::ptr_eq(&now, &self.seen) {
            // Recovery may have moved records: the number is what stays.
            self.cursor = Cursor::new(&*now, Start::After(Seq(self.last)))?;
            self.seen = now;
        }
        match self.cursor.next(&*self.seen) {
            Ok(Some(batch)) => {
                self.last = batch.last().map_or(self.last, |seq| seq.0);
                Ok(Some(batch))
            }
            Ok(None) => match &self.seen.damage {
                Some(damage) => Err(Error::Damaged(damage.clone())),
                None => Ok(None),
            },
            Err(Error::Quarantined { from, to }) => {
                self.last = self.last.max(to.0);
                Err(Error::Quarantined { from, to })
            }
            Err(error) => Err(error),
        }
    }

    /// The number of the last record delivered, or of the one before the start.
    pub fn last(&self) -> Seq {
        Seq(self.last)
    }
}
