//! Opening a log for writing.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use esker_disk::Dir;
use parking_lot::{Condvar, Mutex};

use crate::app_metadata;
use crate::cold::Cold;
use crate::committer::{Committer, Mode};
use crate::core::Core;
use crate::counters::Counters;
use crate::directory;
use crate::engine::{Engine, Work};
use crate::error::{Error, Result};
use crate::floor::Floor;
use crate::format::{BLOCK, LogId};
use crate::layout;
use crate::log::{Log, Owner, Shared, State};
use crate::manifest::{self, Manifest};
use crate::options::{Direct, OnDamage, Options, Policy};
use crate::pinning;
use crate::published::Published;
use crate::recovery;
use crate::repair;
use crate::runway::Runway;
use crate::segments::Segments;
use crate::space::{self, Asked, Reserve};
use crate::tail::Tail;
use crate::waiters::Waiters;

/// Threads for commits of an engine that a log has for itself.
const THREADS: usize = 4;

impl Log {
    /// Opens the log in `dir` for writing, creating it where there is none.
    ///
    /// Takes the lock of the directory itself, and stays with that directory when it is moved. After
    /// a crash this recovers: it keeps every durable record, cuts what was torn, and tells what it
    /// did in [`Log::recovery`]. It reads every segment's header and footer and the newest segment
    /// whole, so its time depends on the number of segments and not on what is in them.
    ///
    /// # Errors
    /// [`Error::Locked`] when another handle or process has the log open for writing,
    /// [`Error::Damaged`] when durable bytes are missing (see [`OnDamage`]), [`Error::Option`],
    /// [`Error::HugePages`], [`Error::NotALog`], [`Error::WrongComponent`], [`Error::Version`],
    /// [`Error::Foreign`], [`Error::NoSpace`] where the disk is full and the reserve does not do, and
    /// [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        let tail = Arc::new(Tail::new(&options)?);
        let engine = engine_of(&options)?;
        let entered = directory::enter(dir.as_ref(), &options)?;
        let dir = &*entered;
        let lock = directory::lock(dir)?;
        // Another process may have created a log since the first look.
        app_metadata::check(dir, &dir.list()?, &options)?;
        let facts = dir.facts()?;
        let durable_commits = options.policy != Policy::OsBuffered;
        let mode = Mode {
            direct: match options.direct {
                Direct::Auto => facts.direct && durable_commits,
                Direct::On => true,
                Direct::Off => false,
            },
            dsync: options.dsync && facts.dsync && durable_commits,
        };

        let manifest = manifest_of(dir, &options)?;
        let direct = options.direct != Direct::Off && facts.direct;
        let survey = recovery::survey(dir, &options, manifest, direct)?;
        let survey = match &survey.damage {
            Some(damage) if options.on_damage != OnDamage::Fail => {
                tracing::warn!(%damage, "putting damaged units aside");
                let (manifest, _) = repair::repair_segments(dir, &options, manifest)?;
                recovery::survey(dir, &options, manifest, direct)?.undamaged()?
            }
            _ => survey.undamaged()?,
        };
        let (durable, had) = (survey.claim, space::size(dir, layout::RESERVE)?);
        let full = |error: Error| error.for_want_of_space(dir.path(), u64::from(BLOCK), durable);
        let adopted = recovery::adopt(dir, &options, survey, engine.wall_ms()).map_err(full)?;
        let reserve = Reserve::open(dir, &options, had).map_err(full)?;

        let start = adopted.start;
        // A sync covers only writes that have ended.
        let depth = if mode.dsync { options.commits_in_flight as usize } else { 1 };
        let core = Core::new(&start, &options, Arc::clone(&tail), depth);
        let segments = Segments::new(adopted.segments);
        let newest = segments.newest().ok_or(Error::Closed)?;
        let committer = Committer::new(dir, mode, newest, adopted.chain, adopted.manifest.session)?;
        let prewrites = durable_commits;
        let published = Published::new(start.base + u64::from(start.offset), start.last_seq);
        let shared = Arc::new_cyclic(|me| Shared {
            id: start.log,
            dir: Arc::clone(&entered),
            mode,
            engine,
            progress: core.all_progress(),
            state: Mutex::new(State {
                core,
                committer: Some(Box::new(committer)),
                committer_lost: false,
                period_runs: false,
                space: Asked::default(),
                wakers: Vec::new(),
            }),
            waiters: Waiters::default(),
            published,
            floor: Floor::new(&segments, adopted.manifest.floor_seq),
            segments,
            tail,
            cold: Cold::new(options.cold_cache),
            runway: Runway::new(start.segment, start.offset, prewrites, options.segment_size),
            counters: Counters::default(),
            manifest: Mutex::new(adopted.manifest),
            spares: Mutex::new(adopted.spares),
            recovery: adopted.recovery,
            disk_name: facts.name,
            lock: Mutex::new(Some(lock)),
            queued: AtomicBool::new(false),
            upkeep_queued: AtomicBool::new(false),
            reads_queued: AtomicBool::new(false),
            turned: AtomicBool::new(true),
            prewriter: Mutex::default(),
            page: Mutex::new(adopted.page),
            changing: Mutex::default(),
            making: Mutex::new(reserve),
            returned: Condvar::new(),
            gathered: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            me: me.clone(),
            options,
        });
        let work: Weak<dyn Work> = shared.me.clone();
        shared.engine.register(work);
        shared.upkeep();
        Ok(Self { _owner: Arc::new(Owner(Arc::clone(&shared))), shared })
    }
}

/// The threads that commit: those given, some on one processor, or those that all logs share.
fn engine_of(options: &Options) -> Result<Engine> {
    let engine = match (&options.engine, options.pin) {
        (Some(engine), _) => return Ok(engine.clone()),
        (None, Some(processor)) => {
            if !pinning::may_use(processor) {
                let rule = format!("a processor that this process may use; {processor} is none");
                return Err(Error::Option { option: "pin", rule });
            }
            Engine::pinned(THREADS, processor)
        }
        (None, None) => Engine::shared(),
    };
    let failed =
        |why| esker_disk::Error::new(esker_disk::Op::Open, Path::new("a thread"), None, why);
    Ok(engine.map_err(failed)?)
}

/// The manifest of the log in a directory that is locked: the one that is there, a new one for a new
/// log, or one made from the segments where the user allowed that.
fn manifest_of(dir: &dyn Dir, options: &Options) -> Result<Manifest> {
    let lost = match Manifest::read(dir) {
        Ok(Some(manifest)) => return Ok(manifest),
        Ok(None) if !layout::is_a_log(&dir.list()?) => {
            app_metadata::create(dir, options)?;
            return recovery::create(dir, LogId(random_id()));
        }
        Ok(None) => manifest::lost(dir),
        Err(error @ Error::Damaged(_)) => error,
        Err(error) => return Err(error),
    };
    if options.on_damage == OnDamage::Fail {
        return Err(lost);
    }
    tracing::warn!(error = %lost, "making the manifest anew");
    let repair::Anew { manifest, may_be_truncated } = repair::manifest(dir)?;
    if let Some((from, to)) = may_be_truncated {
        tracing::warn!(%from, %to, "records in this range may have been truncated before");
    }
    Ok(manifest)
}

/// Sixteen bytes that no other log has, from the keys that the standard library draws at random.
fn random_id() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let mut id = [0; 16];
    id[..8].copy_from_slice(&RandomState::new().hash_one(std::process::id()).to_le_bytes());
    id[8..]
        .copy_from_slice(&RandomState::new().hash_one(std::time::SystemTime::now()).to_le_bytes());
    id
}
