//! The result of one directory scan of a log that another process may be writing.

use std::ops::Range;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use esker_disk::{Dir, OpenMode};
use parking_lot::RwLock;

use crate::base::error::{Corruption, Error, Result};
use crate::base::options::Direct;
use crate::base::read_options::ReadOptions;
use crate::read::batch::Memory;
use crate::read::cache::ReadCache;
use crate::read::read_counts::ReadCounts;
use crate::read::source::{ReadSource, Source, Wait, Want};
use crate::recovery::{explained, read_footed, read_segment_header, scan_dir};
use crate::runtime::engine::{Engine, ReadWork};
use crate::staging::buffer::StagingBuffer;
use crate::store::directory;
use crate::store::manifest::Manifest;
use crate::store::paths;
use crate::store::segment_table::{Segment, SegmentTable, State};
use crate::store::trim_point::{Trim, TrimPoint};
use crate::store::watermark_page::PageReader;

/// The number of scans at most, while a writer changes the directory.
pub(super) const SCANS_MAX: usize = 8;
/// The pause before a repeated scan.
pub(super) const RESCAN_PAUSE: Duration = Duration::from_millis(1);

/// The result of one directory scan, and a cache of what was read since. A replaced snapshot
/// returns no more records: recovery may have moved the last ones.
#[derive(Debug)]
pub(super) struct Snapshot {
    manifest: RwLock<Manifest>,
    page: Option<PageReader>,
    segments: SegmentTable,
    trim_point: TrimPoint,
    /// The log position and the sequence number up to which records may be read.
    limit: RwLock<(u64, u64)>,
    /// Bytes of valid units above every durable lower bound.
    pub(super) unrecovered: u64,
    pub(super) corruption: Option<Corruption>,
    cache: ReadCache,
    engine: Engine,
    weak_self: Weak<Snapshot>,
}

impl Source for Snapshot {
    fn limit(&self) -> (u64, u64) {
        *self.limit.read()
    }

    fn low(&self) -> Trim {
        self.trim_point.low()
    }

    fn segments(&self) -> &SegmentTable {
        &self.segments
    }

    fn buffer(&self, _: u64, _: u32) -> Option<(Arc<StagingBuffer>, u32)> {
        None
    }

    fn units(&self, want: &Want<'_>, wait: Wait<'_>) -> Poll<Result<(Memory, Range<u32>)>> {
        self.cache.units(self, want, wait)
    }
}

impl ReadSource for Snapshot {
    fn is_manual(&self) -> bool {
        self.engine.is_manual()
    }

    fn ask_to_load(&self) -> bool {
        self.cache.request_load(&self.engine, &self.weak_self)
    }

    /// The position in the writer's watermark page. A stream that lags far does not read it
    /// otherwise.
    fn mark(&self) -> u64 {
        let stored = self.page.as_ref().and_then(|page| page.stored().ok().flatten());
        stored.map_or(0, |stored| stored.position)
    }
}

impl ReadWork for Snapshot {
    fn load(&self) {
        self.cache.load_next(self);
    }

    fn dropped_below(&self, segment: u64) {
        self.cache.forget_below(segment);
    }

    fn stopped(&self) {
        self.cache.abandon();
    }
}

impl Snapshot {
    /// Scans the whole directory. A writer may change it meanwhile, so the scan is repeated until
    /// two scans find the same corruption, or none is found.
    pub(super) fn rescan(
        dir: &dyn Dir,
        options: &ReadOptions,
        engine: &Engine,
        counts: &Arc<ReadCounts>,
    ) -> Result<Arc<Self>> {
        let mut outcome = Self::scan(dir, options, engine, counts);
        for _ in 1..SCANS_MAX {
            match &outcome {
                Ok(snapshot) if snapshot.corruption.is_none() => break,
                Err(
                    Error::NotALog { .. }
                    | Error::UnsupportedVersion { .. }
                    | Error::ForeignFile { .. },
                ) => break,
                _ => {
                    std::thread::sleep(RESCAN_PAUSE);
                    let again = Self::scan(dir, options, engine, counts);
                    let same = match (&outcome, &again) {
                        (Ok(before), Ok(now)) => before.found_the_same(now),
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

    /// Whether another scan found the same, with no writer activity between the two.
    pub(super) fn found_the_same(&self, other: &Self) -> bool {
        // Beside a writer, which of two files is newer may change from one scan to the next.
        let place = |corruption: &Option<Corruption>| {
            corruption.as_ref().map(|found| (found.file.clone(), found.offset, found.after))
        };
        self.manifest() == other.manifest()
            && place(&self.corruption) == place(&other.corruption)
            && self.limit() == other.limit()
    }

    pub(super) fn manifest(&self) -> Manifest {
        *self.manifest.read()
    }

    fn scan(
        dir: &dyn Dir,
        options: &ReadOptions,
        engine: &Engine,
        counts: &Arc<ReadCounts>,
    ) -> Result<Arc<Self>> {
        let manifest = Manifest::of_log(dir)?;
        let page = PageReader::open(dir, manifest.log)?;
        let direct = options.direct != Direct::Off && directory::reads_directly(dir);
        let before = page.as_ref().and_then(|page| page.stored().ok().flatten());
        let mut scan = scan_dir(dir, options, manifest, direct)?;
        let after = page.as_ref().and_then(|page| page.stored().ok().flatten());
        let (position, seq, unrecovered) = scan.durable_end();
        // A concurrent writer's commits carry durable lower bounds for records that the scan came
        // too early to see. The records that were durable when the scan began are there.
        if before != after && before.is_some_and(|before| before.seq <= seq) {
            scan.corruption = None;
        }
        let segments =
            SegmentTable::new(scan.live.iter().map(|live| Arc::clone(&live.segment)).collect());
        let snapshot = Arc::new_cyclic(|weak_self| Self {
            trim_point: TrimPoint::new(&segments, scan.manifest.trim_seq),
            manifest: RwLock::new(manifest),
            page,
            segments,
            limit: RwLock::new((position, seq)),
            unrecovered,
            corruption: scan.corruption.map(|corruption| explained(dir, &manifest, corruption)),
            cache: ReadCache::new(options.read_cache, Arc::clone(counts)),
            engine: engine.clone(),
            weak_self: weak_self.clone(),
        });
        let work: Weak<dyn ReadWork> = snapshot.weak_self.clone();
        engine.register_reads(work);
        Ok(snapshot)
    }

    /// Follows the writer's watermark. With `check_manifest`, and if the watermark is unchanged,
    /// also checks whether the log was closed or records were dropped. `false` when only a new scan
    /// can decide.
    pub(super) fn follow_watermark(
        &self,
        dir: &dyn Dir,
        options: &ReadOptions,
        check_manifest: bool,
    ) -> Result<bool> {
        let Some(stored) = self.page.as_ref().and_then(|page| page.stored().ok().flatten()) else {
            return Ok(false);
        };
        let manifest = self.manifest();
        if stored.session != manifest.session || self.corruption.is_some() {
            return Ok(false);
        }
        if stored.seq <= self.limit().1 {
            if !check_manifest {
                return Ok(true);
            }
            let now = Manifest::read(dir)?;
            return Ok(now.is_some_and(|now| now == manifest || self.raise_trim_point(&now)));
        }
        while let Some(newest) = self.segments.newest().filter(|n| n.number() < stored.segment) {
            match next_segment(dir, options, &manifest, &newest)? {
                Some(next) => self.segments.push(next),
                // It left the log before this lookup, or has another name.
                None => return Ok(false),
            }
            self.take_footers();
        }
        *self.limit.write() = (stored.position, stored.seq);
        Ok(true)
    }

    /// Loads the index of segments that the writer sealed since the last poll. The footer of a
    /// segment appears when the next one begins, or a little later. Without it a segment is still
    /// readable.
    fn take_footers(&self) {
        let segments = self.segments.all();
        for (segment, next) in segments.iter().zip(segments.iter().skip(1)) {
            if segment.state.read().footed {
                continue;
            }
            let Some(state) = read_footed(segment, &next.header) else { continue };
            *segment.state.write() = state;
        }
    }

    /// Drops whole segments that left the log, if the log did not change otherwise. A trim point
    /// inside a segment needs a new scan: there may be no index here to locate it.
    fn raise_trim_point(&self, now: &Manifest) -> bool {
        let mut manifest = self.manifest.write();
        let Manifest { trim_segment, trim_seq, durable, .. } = *now;
        if *now != (Manifest { trim_segment, trim_seq, durable, ..*manifest }) {
            return false;
        }
        let segments = self.segments.all();
        let Some(first) = segments.iter().find(|segment| segment.number() == trim_segment) else {
            return false;
        };
        if first.header.prev_seq != trim_seq {
            return false;
        }
        // Same order as the writer: a reader below the trim point must not look for removed
        // segments.
        self.trim_point.raise(Trim { seq: trim_seq, position: first.header.base });
        self.segments.drop_below(trim_segment);
        self.cache.forget_below(trim_segment);
        *manifest = *now;
        true
    }

    /// How far the writer's watermark page is ahead of this snapshot, in records and in bytes.
    /// `None` where no page of this session can be read.
    pub(super) fn behind(&self) -> Option<(u64, u64)> {
        let stored = self.page.as_ref()?.stored().ok().flatten()?;
        let (position, seq) = self.limit();
        (stored.session == self.manifest().session)
            .then(|| (stored.seq.saturating_sub(seq), stored.position.saturating_sub(position)))
    }

    /// Marks this snapshot as replaced. Waiting reads are woken and retry on the new one.
    pub(super) fn supersede(&self) {
        self.cache.abandon();
        self.cache.forget_below(u64::MAX);
    }

    /// Bytes of the cached chunks.
    pub(super) fn cached_bytes(&self) -> u64 {
        self.cache.bytes()
    }
}

/// The segment after the newest one known, if the writer has begun it.
fn next_segment(
    dir: &dyn Dir,
    options: &ReadOptions,
    manifest: &Manifest,
    newest: &Segment,
) -> Result<Option<Arc<Segment>>> {
    let number = newest.number() + 1;
    let name = paths::segment(number);
    let direct = options.direct != Direct::Off && directory::reads_directly(dir);
    let reader = match dir.open(&name, OpenMode::read().direct(direct)) {
        Ok(reader) => reader,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause.into()),
    };
    let Ok((header, _)) = read_segment_header(&*reader, manifest, number)? else {
        return Ok(None);
    };
    if header.prev_segment != newest.number() {
        return Ok(None);
    }
    Ok(Some(Arc::new(Segment {
        salt: header.salt(),
        state: RwLock::new(State { last_seq: header.prev_seq, ..State::default() }),
        header,
        path: dir.path_of(&name),
        reader,
    })))
}
