//! Opening a log for writing.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use esker_disk::{Dir, Facts, Lock};
use parking_lot::{Condvar, Mutex, ReentrantMutex};

use crate::base::error::{Error, Result, corruption_at, register_process, with_causes};
use crate::base::invalid_option::InvalidOption;
use crate::base::lender::{Lent, SharedReserve};
use crate::base::log_error::LogError;
use crate::base::operation_errors::OpenError;
use crate::base::options::{Direct, OnCorruption, Options, Policy};
use crate::base::read_options::ReadOptions;
use crate::commit::callbacks::Callbacks;
use crate::commit::committer::Committer;
use crate::commit::core::Core;
use crate::commit::log_space::LogSpace;
use crate::commit::pending_work::PendingWork;
use crate::commit::preallocator::Preallocator;
use crate::commit::segment_set::SegmentSet;
use crate::commit::space_request::SpaceRequests;
use crate::commit::write_half::{State, WriteHalf};
use crate::consumers::Consumers;
use crate::format::{BLOCK_BYTES, LogId};
use crate::log::{Log, Owner};
use crate::read::cache::ReadCache;
use crate::read::read_half::ReadHalf;
use crate::read::stream_table::StreamTable;
use crate::recovery::repair;
use crate::recovery::{self, RecoveredLog};
use crate::runtime::affinity;
use crate::runtime::counters::Counters;
use crate::runtime::detached::detached;
use crate::runtime::engine::{CommitWork, Engine, ReadWork};
use crate::runtime::waiters::{Waiters, WaitingCallers};
use crate::staging::tail_cache::TailCache;
use crate::staging::terminal::TerminalCell;
use crate::staging::watermark::DurableWatermark;
use crate::store::app_metadata;
use crate::store::directory;
use crate::store::file_mode::FileMode;
use crate::store::manifest::{self, Manifest};
use crate::store::paths;
use crate::store::segment_table::SegmentTable;
use crate::store::space_reserve::{self, Reserve};
use crate::store::trim_point::TrimPoint;

/// Commit threads of an engine that serves a single log.
const COMMIT_THREADS: usize = 4;

impl Log {
    /// Opens the log in `dir` for writing with the default options, and creates it if there is
    /// none. [`Log::builder`] sets other options.
    ///
    /// Locks the directory itself, and keeps that lock when the directory is moved. After a crash
    /// this runs recovery: it keeps every durable record, cuts the torn tail, and reports what it
    /// did in [`Storage::recovery`](crate::Storage::recovery). It reads the header and footer of
    /// each segment, and the newest segment: after a clean close the end of it, otherwise all of it
    /// (see [`OpenCheck::Quick`](crate::OpenCheck::Quick)). So its time depends on the number of
    /// segments, not on their contents.
    ///
    /// From here on `fork` makes children that use and open nothing. In one, every call that
    /// returns a `Result` fails with [`LogError::Forked`], and dropping the handle changes nothing.
    /// Other calls, such as [`Log::stats`], are not for a child. It shares the lock until it ends
    /// or calls `exec`.
    ///
    /// # Errors
    /// [`OpenError::Locked`] when another handle or process has the log open for writing,
    /// [`OpenError::Corrupted`] when durable bytes are missing (see [`OnCorruption`]),
    /// [`OpenError::InvalidOption`], [`OpenError::HugePages`], [`OpenError::NotALog`],
    /// [`OpenError::WrongComponent`], [`OpenError::UnsupportedVersion`],
    /// [`OpenError::ForeignFile`], [`OpenError::NoSpace`] when the disk is full and the reserve
    /// does not suffice, [`LogError::Forked`], and [`LogError::Io`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let log = esker_log::Log::open(dir.path().join("log"))?;
    /// log.append(b"a record")?.blocking_wait()?;
    /// log.close()?;
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(dir.as_ref(), Options::default())
    }

    pub(super) async fn open_with_async(dir: PathBuf, options: Options) -> Result<Self, OpenError> {
        detached(move || Self::open_with(&dir, options)).await.map_err(LogError::no_thread)?
    }

    /// Returns the options that the log was opened with.
    pub fn options(&self) -> &Options {
        &self.write.options
    }

    pub(super) fn open_with(dir: &Path, options: Options) -> Result<Self, OpenError> {
        Self::recover(dir, options).map_err(OpenError::narrow)
    }

    fn recover(dir: &Path, options: Options) -> Result<Self> {
        register_process(dir)?;
        options.validate()?;
        let tail = Arc::new(TailCache::new(&options)?);
        let engine = engine_of(&options)?;
        let dir = directory::enter(dir, &options)?;
        let lock = directory::lock_entered(&*dir, &options)?;
        let facts = dir.facts()?;
        let mode = file_mode(&options, &facts);
        let (mut recovered, reserve) = recover_files(&*dir, &options, &facts, &engine)?;

        let core = Core::new(&recovered.start, &options, Arc::clone(&tail), mode.dsync);
        let shared = Shared::new(engine, tail, &mut recovered);
        let newest = shared
            .segments
            .newest()
            .ok_or_else(|| corruption_at(dir.path(), 0, 0, "no segment is left"))?;
        let committer =
            Committer::new(&*dir, mode, newest, recovered.chain, recovered.manifest.session)?;
        let recovery = recovered.recovery.clone();
        let files = LogFiles { dir, lock, mode, recovered, reserve };

        let read = read_half(&shared, &options);
        let sources: Weak<dyn ReadWork> = read.weak_self.clone();
        let write = write_half(files, shared, (core, committer), Weak::clone(&sources), options);
        let commits: Weak<dyn CommitWork> = write.weak_self.clone();
        write.engine.register(commits);
        write.engine.register_reads(sources);
        write.count_ages();
        write.maintain();
        let consumers = Consumers::new(Arc::clone(&write.dir), write.id);
        let (writing, reading) = (Arc::clone(&write), Arc::clone(&read));
        let disk_name = facts.name;
        let owner = Owner { write: writing, read: reading, recovery, disk_name, consumers };
        Ok(Self { write, read, owner: Arc::new(owner) })
    }
}

/// The directory of a log that is being opened, locked and recovered.
struct LogFiles {
    dir: Arc<dyn Dir>,
    lock: Box<dyn Lock>,
    mode: FileMode,
    recovered: RecoveredLog,
    reserve: Reserve,
}

/// The state that the two halves of a log share.
struct Shared {
    engine: Engine,
    waiters: Arc<Waiters>,
    watermark: Arc<DurableWatermark>,
    terminal: Arc<TerminalCell>,
    segments: Arc<SegmentTable>,
    tail: Arc<TailCache>,
    trim_point: Arc<TrimPoint>,
    closed: Arc<AtomicBool>,
}

impl Shared {
    /// Takes the segments of `recovered`.
    fn new(engine: Engine, tail: Arc<TailCache>, recovered: &mut RecoveredLog) -> Self {
        let start = recovered.start;
        let segments = SegmentTable::new(std::mem::take(&mut recovered.segments));
        let watermark = DurableWatermark::new(start.base + u64::from(start.offset), start.last_seq);
        Self {
            engine,
            waiters: Arc::default(),
            watermark: Arc::new(watermark),
            terminal: Arc::default(),
            trim_point: Arc::new(TrimPoint::new(&segments, recovered.manifest.trim_seq)),
            segments: Arc::new(segments),
            tail,
            closed: Arc::default(),
        }
    }
}

fn read_half(shared: &Shared, options: &Options) -> Arc<ReadHalf> {
    Arc::new_cyclic(|weak_self| ReadHalf {
        engine: shared.engine.clone(),
        waiters: Arc::clone(&shared.waiters),
        watermark: Arc::clone(&shared.watermark),
        terminal: Arc::clone(&shared.terminal),
        segments: Arc::clone(&shared.segments),
        tail: Arc::clone(&shared.tail),
        trim_point: Arc::clone(&shared.trim_point),
        cache: ReadCache::new(options.read_cache, Arc::default()),
        streams: StreamTable::default(),
        closed: Arc::clone(&shared.closed),
        weak_self: weak_self.clone(),
    })
}

/// `readers` are notified when segments are dropped.
fn write_half(
    files: LogFiles,
    shared: Shared,
    (core, committer): (Core, Committer),
    readers: Weak<dyn ReadWork>,
    options: Options,
) -> Arc<WriteHalf> {
    let LogFiles { dir, lock, mode, recovered, reserve } = files;
    let Shared { engine, waiters, watermark, terminal, segments, tail, trim_point, closed } =
        shared;
    let start = recovered.start;
    let (prewrites, size) = (is_durable(&options), options.segment_size);
    let preallocator = Preallocator::new(start.segment, start.offset, prewrites, size);
    let pending = PendingWork::default();
    // Footers may be missing, and the retention may have changed.
    pending.request_rotation();
    Arc::new_cyclic(|weak_self| WriteHalf {
        id: start.log,
        dir,
        mode,
        engine,
        fill_tracker: core.fill_trackers(),
        state: Mutex::new(State {
            core,
            committer: Some(Box::new(committer)),
            committer_lost: false,
            timer_armed: false,
            space: SpaceRequests::default(),
            committing_callers: WaitingCallers::default(),
            wakers: Vec::new(),
        }),
        waiters,
        callbacks: Callbacks::default(),
        watermark,
        terminal,
        segments: SegmentSet::new(segments, trim_point, options.retention, readers),
        space: LogSpace::new(preallocator, reserve, recovered.spares),
        pending,
        tail,
        counters: Counters::default(),
        manifest: Mutex::new(recovered.manifest),
        checkpoints: ReentrantMutex::default(),
        receiving: Arc::default(),
        lock: Mutex::new(Some(lock)),
        watermark_page: Mutex::new(recovered.page),
        committer_idle: Condvar::new(),
        closed,
        weak_self: weak_self.clone(),
        options,
    })
}

fn is_durable(options: &Options) -> bool {
    options.policy != Policy::OsBuffered
}

/// How the segments are opened: without the page cache, and so that each write is durable, where
/// the options ask for it and the disk can.
fn file_mode(options: &Options, facts: &Facts) -> FileMode {
    let durable_commits = is_durable(options);
    FileMode {
        direct: match options.direct {
            Direct::Auto => facts.direct && durable_commits,
            Direct::On => true,
            Direct::Off => false,
        },
        dsync: options.dsync && facts.dsync && durable_commits,
    }
}

/// Recovers the log in a locked directory, in the space of a shared reserve if it needs that, and
/// opens its own reserve.
fn recover_files(
    dir: &dyn Dir,
    options: &Options,
    facts: &Facts,
    engine: &Engine,
) -> Result<(RecoveredLog, Reserve)> {
    let read_options = ReadOptions::from(options);
    let direct = options.direct != Direct::Off && facts.direct;
    let had = space_reserve::size(dir, paths::RESERVE)?;
    let recover = || recover(dir, options, &read_options, direct, engine.wall_ms());
    let mut recovered = match recover() {
        // A failed recovery leaves a directory that any opening recovers.
        Err(error) if error.is_no_space() => in_shared_space(options, error, recover),
        recovered => recovered,
    }?;
    let durable = recovered.start.last_seq;
    let reserve = open_reserve(dir, options, &mut recovered.manifest, had)
        .map_err(|error| error.for_want_of_space(dir.path(), u64::from(BLOCK_BYTES), durable))?;
    Ok((recovered, reserve))
}

/// Opens the reserve, which had `had` bytes before the recovery.
fn open_reserve(
    dir: &dyn Dir,
    options: &Options,
    manifest: &mut Manifest,
    had: u64,
) -> Result<Reserve> {
    let recorded = manifest.reserve_blocks;
    let is_ring = manifest.retention.is_set();
    let mut reserve = Reserve::open(dir, options, had, recorded, is_ring)?;
    // Another opening may want less, and must not make it less for the next one.
    if manifest.reserve_blocks < reserve.had_blocks() {
        manifest.reserve_blocks = reserve.had_blocks();
        manifest.write(dir)?;
        reserve.recorded = manifest.reserve_blocks;
    }
    Ok(reserve)
}

/// Recovers what is in the directory, and repairs it first if the options say so.
fn recover(
    dir: &dyn Dir,
    options: &Options,
    read_options: &ReadOptions,
    direct: bool,
    now_ms: u64,
) -> Result<RecoveredLog> {
    let manifest = manifest_of(dir, options)?;
    let mut scan = recovery::scan_dir(dir, read_options, manifest, direct)?;
    let durable = scan.durable_bound;
    let full = |error: Error| error.for_want_of_space(dir.path(), u64::from(BLOCK_BYTES), durable);
    if options.on_corruption != OnCorruption::Fail
        && let Some(corruption) = &scan.corruption
    {
        tracing::warn!(%corruption, "quarantining corrupt units");
        let (on_corruption, quarantined) = (options.on_corruption, &mut Vec::new());
        // The trim point may be that of the watermark page.
        let manifest = Manifest { trim_seq: scan.manifest.trim_seq, ..manifest };
        let manifest = repair::repair_segments(
            dir,
            read_options,
            on_corruption,
            manifest,
            quarantined,
            &mut |_| {},
        )
        .map_err(full)?;
        scan = recovery::scan_dir(dir, read_options, manifest, direct)?;
    }
    let scan = recovery::intact(dir, scan)?;
    recovery::finalize(dir, read_options, scan, options.retention, now_ms).map_err(full)
}

/// Recovers a log that the full disk had no room for, in the space of the reserve that it shares.
fn in_shared_space<T>(
    options: &Options,
    full: Error,
    mut recover: impl FnMut() -> Result<T>,
) -> Result<T> {
    let lender = options.shared_reserve.as_ref().and_then(SharedReserve::lender);
    let Some(lender) = lender else { return Err(full) };
    let mut recovered = None;
    lender.lend(Lent::All, &mut || {
        recovered = Some(recover()?);
        Ok(())
    })?;
    recovered.ok_or(full)
}

/// Returns the engine to use: the given one, one pinned to a processor, or the shared one.
fn engine_of(options: &Options) -> Result<Engine> {
    let engine = match (&options.engine, options.pin) {
        (Some(engine), _) => return Ok(engine.clone()),
        (None, Some(processor)) => {
            if !affinity::may_use(processor) {
                let rule = format!("a processor that this process may use; {processor} is none");
                return Err(InvalidOption { option: "pin", rule }.into());
            }
            Engine::pinned(COMMIT_THREADS, processor)
        }
        (None, None) => Engine::shared(),
    };
    engine.map_err(Error::no_thread)
}

/// Returns the manifest of the log in a locked directory. A new log gets a new manifest. If the
/// user allowed repair, a lost manifest is rebuilt from the segments.
fn manifest_of(dir: &dyn Dir, options: &Options) -> Result<Manifest> {
    let lost = match Manifest::read(dir) {
        Ok(Some(manifest)) => return Ok(manifest),
        Ok(None) if !paths::is_a_log(&dir.list()?) => {
            app_metadata::create(dir, options)?;
            return recovery::create(dir, LogId::random());
        }
        Ok(None) => manifest::lost(dir),
        Err(error @ Error::Corrupted(_)) => error,
        Err(error) => return Err(error),
    };
    if options.on_corruption == OnCorruption::Fail {
        return Err(lost);
    }
    tracing::warn!(error = with_causes(&lost), "rebuilding the manifest");
    let repair::RebuiltManifest { manifest, may_be_truncated } = repair::manifest(dir)?;
    if let Some(records) = may_be_truncated {
        tracing::warn!(%records, "records may have been truncated before");
    }
    Ok(manifest)
}
