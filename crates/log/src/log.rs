//! An open log: what its parts share, and how a commit goes from a caller to the disk and back.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Instant;

use esker_disk::{Lock, Open};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::committer::{Committer, Mode};
use crate::core::{Core, Job};
use crate::counters::Counters;
use crate::engine::{Engine, Work};
use crate::error::{Error, Latch, Result};
use crate::floor::Floor;
use crate::format::LogId;
use crate::layout;
use crate::manifest::{End, Manifest};
use crate::options::{Direct, OnDamage, Options, Policy};
use crate::progress::Progress;
use crate::published::Published;
use crate::recovery::{self, Recovery};
use crate::repair;
use crate::runway::{Ready, Runway};
use crate::segments::Segments;
use crate::tail::Tail;
use crate::waiters::{For, Waiters, park, thread_waker};

/// A durable, append-only log in a directory. Cheap to clone; all clones are the same log.
///
/// The last handle to go closes the log and blocks while it does; call [`Log::close`] to see
/// whether that worked.
#[derive(Debug, Clone)]
pub struct Log {
    pub(crate) shared: Arc<Shared>,
    _owner: Arc<Owner>,
}

/// Closes the log when the last handle goes.
#[derive(Debug)]
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        match self.0.close(None) {
            Ok(()) | Err(Error::Closed) => {}
            Err(error) => tracing::warn!(%error, "the log was not closed cleanly"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: LogId,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) mode: Mode,
    pub(crate) engine: Engine,
    state: Mutex<State>,
    pub(crate) waiters: Waiters,
    pub(crate) published: Published,
    pub(crate) segments: Segments,
    pub(crate) tail: Arc<Tail>,
    pub(crate) runway: Runway,
    pub(crate) counters: Counters,
    progress: Arc<[Progress]>,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) floor: Floor,
    /// Numbers of spare files.
    pub(crate) spares: Mutex<Vec<u64>>,
    pub(crate) recovery: Recovery,
    pub(crate) disk_name: &'static str,
    lock: Mutex<Option<Box<dyn Lock>>>,
    /// The log stands in the engine's queue for a commit; for slow work.
    queued: AtomicBool,
    upkeep_queued: AtomicBool,
    /// Held by whoever changes which segments there are.
    pub(crate) changing: Mutex<()>,
    /// Somebody may wait for the committer to come back.
    returned: Condvar,
    closed: AtomicBool,
    me: Weak<Shared>,
}

/// What is behind the one lock that appenders and committers share. It is never held across I/O.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) core: Core,
    /// There while nobody commits.
    committer: Option<Box<Committer>>,
    /// It will not come back.
    committer_lost: bool,
    period_runs: bool,
}

impl Log {
    /// Opens the log in `dir` for writing, creating it where there is none.
    ///
    /// Takes the directory's lock. After a crash this recovers: it keeps every durable record, cuts
    /// what was torn, and tells what it did in [`Log::recovery`]. It reads every segment's header
    /// and footer and the newest segment whole, so its time depends on the number of segments and
    /// not on what is in them.
    ///
    /// # Errors
    /// [`Error::Locked`] when another handle or process has the log open for writing,
    /// [`Error::Damaged`] when durable bytes are missing (see [`OnDamage`]), [`Error::Option`],
    /// [`Error::NotALog`], [`Error::Version`], [`Error::Foreign`], and [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.check()?;
        let dir = dir.as_ref();
        let disk = Arc::clone(&options.disk);
        let found = enter(dir, &options)?;
        let lock = disk.lock(&dir.join(layout::LOCK)).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked { dir: dir.into() },
            _ => cause.into(),
        })?;
        let engine = match &options.engine {
            Some(engine) => engine.clone(),
            None => Engine::shared().map_err(|cause| {
                esker_disk::Error::new(esker_disk::Op::Open, Path::new("a thread"), None, cause)
            })?,
        };
        let facts = disk.facts(dir)?;
        let durable_commits = options.policy != Policy::OsBuffered;
        let mode = Mode {
            direct: match options.direct {
                Direct::Auto => facts.direct && durable_commits,
                Direct::On => true,
                Direct::Off => false,
            },
            dsync: options.dsync && facts.dsync && durable_commits,
        };

        let manifest = match found {
            Some(manifest) => manifest,
            None => match Manifest::read(&*disk, dir) {
                Ok(Some(manifest)) => manifest,
                Ok(None) => recovery::create(dir, &options, LogId(random_id()))?,
                Err(error @ Error::Damaged(_)) if options.on_damage != OnDamage::Fail => {
                    tracing::warn!(%error, "rebuilding the manifest");
                    repair::manifest(dir, &options)?
                }
                Err(error) => return Err(error),
            },
        };
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
        let adopted = recovery::adopt(dir, &options, survey, engine.wall_ms())?;

        let start = adopted.start;
        let tail = Arc::new(Tail::new(options.tail_cache));
        let core = Core::new(&start, &options, Arc::clone(&tail));
        let segments = Segments::new(adopted.segments);
        let newest = segments.newest().ok_or(Error::Closed)?;
        let committer = Committer::new(
            &*disk,
            mode,
            newest,
            adopted.chain,
            adopted.manifest.session,
            adopted.page,
        )?;
        let prewrites = durable_commits;
        let published = Published::new(start.base + u64::from(start.offset), start.last_seq);
        let shared = Arc::new_cyclic(|me| Shared {
            id: start.log,
            dir: dir.into(),
            mode,
            engine,
            progress: core.all_progress(),
            state: Mutex::new(State {
                core,
                committer: Some(Box::new(committer)),
                committer_lost: false,
                period_runs: false,
            }),
            waiters: Waiters::default(),
            published,
            floor: Floor::new(&segments, adopted.manifest.floor_seq),
            segments,
            tail,
            runway: Runway::new(start.segment, start.offset, start.offset, prewrites),
            counters: Counters::default(),
            manifest: Mutex::new(adopted.manifest),
            spares: Mutex::new(adopted.spares),
            recovery: adopted.recovery,
            disk_name: facts.name,
            lock: Mutex::new(Some(lock)),
            queued: AtomicBool::new(false),
            upkeep_queued: AtomicBool::new(false),
            changing: Mutex::default(),
            returned: Condvar::new(),
            closed: AtomicBool::new(false),
            me: me.clone(),
            options,
        });
        shared.upkeep();
        Ok(Self { _owner: Arc::new(Owner(Arc::clone(&shared))), shared })
    }

    /// Makes everything accepted durable, marks the end as clean, and gives up the lock. Appends
    /// that come later get [`Error::Closed`], and so does a second close.
    ///
    /// # Errors
    /// The failure that kept a record from becoming durable. The log is closed all the same, but
    /// not cleanly: the next opening recovers.
    pub fn close(&self) -> Result<()> {
        self.shared.close(None)
    }

    /// As [`Log::close`], but gives up after the deadline: the log accepts nothing more, what was
    /// staged may still become durable, and the lock is kept until the commit in flight ends.
    ///
    /// # Errors
    /// As [`Log::close`], and [`Error::Deadline`].
    pub fn close_timeout(&self, timeout: std::time::Duration) -> Result<()> {
        self.shared.close(Instant::now().checked_add(timeout))
    }

    /// How the log was found when it was opened, and what recovery did.
    pub fn recovery(&self) -> &Recovery {
        &self.shared.recovery
    }
}

/// Looks whether the directory is, or can become, a log's.
fn enter(dir: &Path, options: &Options) -> Result<Option<Manifest>> {
    let disk = &*options.disk;
    let not_a_log = |found: &str| Error::NotALog { dir: dir.into(), found: found.into() };
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
            if options.must_exist {
                return Err(not_a_log("there is no such directory"));
            }
            disk.create_dir(dir)?;
            return Ok(None);
        }
        Err(cause) if cause.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(not_a_log("it is a file, and a log is a directory"));
        }
        Err(cause) => return Err(cause.into()),
    };
    if names.iter().any(|name| name == layout::MANIFEST) {
        return Ok(None);
    }
    let is_own = |name: &String| !matches!(layout::classify(name), layout::Name::Stranger);
    if names.iter().any(|name| matches!(layout::classify(name), layout::Name::Segment(_))) {
        return match options.on_damage {
            OnDamage::Fail => Err(recovery::damage_at(
                &dir.join(layout::MANIFEST),
                0,
                0,
                "the manifest is missing, and segments are there",
            )),
            _ => repair::manifest(dir, options).map(Some),
        };
    }
    if !names.iter().all(is_own) {
        return Err(not_a_log("it holds other files"));
    }
    if options.must_exist {
        return Err(not_a_log("it is empty"));
    }
    Ok(None)
}

/// Sixteen bytes that no other log has, from the keys that the standard library draws at random.
fn random_id() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let mut id = [0; 16];
    id[..8].copy_from_slice(&RandomState::new().hash_one(std::process::id()).to_le_bytes());
    id[8..].copy_from_slice(&RandomState::new().hash_one(std::time::SystemTime::now()).to_le_bytes());
    id
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn progress(&self, unit: u64) -> &Progress {
        &self.progress[(unit % self.progress.len() as u64) as usize]
    }

    // ---- waiting -------------------------------------------------------------------------------

    /// What became of a record: `None` while that is open.
    pub(crate) fn outcome(&self, seq: u64) -> Option<Result<()>> {
        if self.published.seq() >= seq {
            return Some(Ok(()));
        }
        if !self.published.is_latched() {
            return None;
        }
        let state = self.lock();
        if self.published.seq() >= seq {
            return Some(Ok(()));
        }
        match state.core.latch() {
            Some(Latch::Failed { cause, through }) if seq <= *through => {
                Some(Err(Error::Io((**cause).clone())))
            }
            Some(latch @ (Latch::Failed { .. } | Latch::Stopped)) => Some(Err(latch.refusal())),
            Some(Latch::Closed) | None => None,
        }
    }

    /// Asks for a commit through this unit, and drives it on this thread if nobody else commits.
    /// `false` if somebody else does; the caller then waits to be woken.
    pub(crate) fn drive(&self, unit: u64) -> bool {
        let mut state = self.lock();
        state.core.ask_sync(unit);
        let Some(committer) = state.committer.take() else {
            return false;
        };
        self.run_commits(state, committer, Some(unit));
        true
    }

    /// Drives the next commit on this thread, if nobody else commits.
    pub(crate) fn drive_one(&self) -> bool {
        let mut state = self.lock();
        let Some(committer) = state.committer.take() else {
            return false;
        };
        let unit = state.core.durable().unit + 1;
        self.run_commits(state, committer, Some(unit));
        true
    }

    pub(crate) fn me(&self) -> Arc<Shared> {
        self.me.upgrade().unwrap_or_else(|| unreachable!("somebody holds the log"))
    }

    /// Asks for a commit through this unit and leaves it to the engine.
    pub(crate) fn ask_and_kick(&self, unit: u64) {
        let mut state = self.lock();
        state.core.ask_sync(unit);
        self.kick(&state);
    }

    /// The caller does not wait: asks for what the policy owes it.
    pub(crate) fn unawaited(&self, unit: u64) {
        let mut state = self.lock();
        state.core.ask_unawaited(unit);
        self.kick(&state);
    }

    /// Queues the log with the engine if there is work that nobody is on.
    pub(crate) fn kick(&self, state: &State) {
        if state.committer.is_some() && state.core.has_job() && !self.queued.swap(true, SeqCst) {
            match self.me.upgrade() {
                Some(me) => self.engine.commit(me),
                None => self.queued.store(false, SeqCst),
            }
        }
    }

    // ---- committing ----------------------------------------------------------------------------

    /// Commits until the unit is durable, or until nothing more was asked for.
    fn run_commits<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut committer: Box<Committer>,
        until: Option<u64>,
    ) {
        let _watch = Watch(self);
        let mut wakers = std::mem::take(&mut committer.wakers);
        loop {
            let durable = state.core.durable();
            if until.is_some_and(|unit| durable.unit >= unit) {
                break;
            }
            let Some(mut job) = state.core.next_job() else {
                break;
            };
            drop(state);
            let outcome = committer.perform(self, &mut job, durable);
            state = self.lock();
            match outcome {
                Ok(()) => match job {
                    Job::Write { unit, sync } => {
                        state.core.complete(unit.mark(), unit.records, sync);
                        state.core.return_index(unit.index);
                    }
                    Job::Sync => state.core.synced(),
                },
                Err(error) => {
                    let through = match &job {
                        Job::Write { unit, .. } => unit.last_seq,
                        Job::Sync => state.core.written().seq,
                    };
                    self.latch(&mut state, error, through);
                    break;
                }
            }
            let mark = state.core.durable();
            self.published.publish(mark.position, mark.seq);
            drop(state);
            self.waiters.take(mark.seq, true, &mut wakers);
            wakers.drain(..).for_each(std::task::Waker::wake);
            let told = if mark == durable { Ok(()) } else { committer.tell(mark) };
            if self.runway.is_low(self.options.segment_size) {
                self.want_upkeep();
            }
            state = self.lock();
            if let Err(error) = told {
                self.latch(&mut state, error, mark.seq);
                break;
            }
        }
        committer.wakers = wakers;
        state.committer = Some(committer);
        self.returned.notify_all();
        self.kick(&state);
        drop(state);
        if self.published.is_latched() {
            self.wake_all();
        }
        if self.engine.is_manual() && self.upkeep_queued.load(SeqCst) {
            self.upkeep();
        }
    }

    /// Takes no more records from here on, for this reason. Whoever holds the state wakes everybody
    /// after letting go of it.
    fn latch(&self, state: &mut State, error: Error, through: u64) {
        let latch = match error {
            Error::Io(cause) => Latch::Failed { cause: Arc::new(cause), through },
            error => {
                tracing::error!(%error, "the commit failed");
                Latch::Stopped
            }
        };
        state.core.set_latch(latch);
        self.published.set_latched();
    }

    /// A failure outside a commit.
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.lock();
        let through = state.core.durable().seq;
        self.latch(&mut state, error, through);
        drop(state);
        self.wake_all();
    }

    pub(crate) fn wake_all(&self) {
        let mut wakers = Vec::new();
        self.waiters.take_all(&mut wakers);
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Starts the timer of `Periodic` for a record that was just accepted.
    pub(crate) fn start_period(&self, state: &mut State) {
        if let Policy::Periodic(period) = state.core.policy()
            && !state.period_runs
        {
            state.period_runs = true;
            let at = self.engine.now() + period;
            let me: Weak<dyn Work> = self.me.clone();
            self.engine.at(at, me);
        }
    }

    // ---- slow work -----------------------------------------------------------------------------

    /// Asks for slow work.
    pub(crate) fn want_upkeep(&self) {
        if !self.upkeep_queued.swap(true, SeqCst)
            && !self.engine.is_manual()
            && let Some(me) = self.me.upgrade()
        {
            self.engine.upkeep(me);
        }
    }

    /// Makes the file of a segment, durably named, from a spare if there is one.
    pub(crate) fn make_segment(&self, number: u64) -> Result<Ready> {
        let disk = &*self.options.disk;
        let path = layout::segment(&self.dir, number);
        let spare = self.spares.lock().pop();
        let mut written_to = 0;
        if let Some(spare) = spare {
            disk.rename(&layout::spare(&self.dir, spare), &path)?;
        } else {
            let file = disk.open(&path, Open::create())?;
            file.set_len(0)?;
            file.preallocate(0, u64::from(self.options.segment_size))?;
            file.sync_data()?;
        }
        disk.sync_dir(&self.dir)?;
        let writer = disk.open(&path, self.mode.writing())?;
        if spare.is_some() {
            let len = writer.len()?.min(u64::from(self.options.segment_size));
            written_to = len as u32 / crate::format::BLOCK * crate::format::BLOCK;
        }
        let reader = disk.open(&path, self.mode.reading())?;
        Ok(Ready { writer, reader, written_to })
    }

    // ---- ending --------------------------------------------------------------------------------

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    fn close(&self, deadline: Option<Instant>) -> Result<()> {
        if self.closed.swap(true, SeqCst) {
            return Err(Error::Closed);
        }
        let unit = {
            let mut state = self.lock();
            state.core.set_latch(Latch::Closed);
            let unit = state.core.last_unit();
            state.core.ask_sync(unit);
            unit
        };
        let settled = self.settle(unit, deadline);
        let outcome = self.take_committer(deadline).and_then(|committer| {
            let Some(mut committer) = committer else {
                return settled.and(Err(Error::Stopped));
            };
            let ended = settled.and_then(|()| self.end(&mut committer));
            self.lock().committer = Some(committer);
            ended
        });
        self.published.set_latched();
        self.wake_all();
        if !matches!(outcome, Err(Error::Deadline)) {
            *self.lock.lock() = None;
        }
        outcome
    }

    /// Waits for the end of the commit in flight. `None` when whoever had the committer died.
    fn take_committer(&self, deadline: Option<Instant>) -> Result<Option<Box<Committer>>> {
        let mut state = self.lock();
        loop {
            if let Some(committer) = state.committer.take() {
                return Ok(Some(committer));
            }
            if state.committer_lost {
                return Ok(None);
            }
            match deadline {
                None => self.returned.wait(&mut state),
                Some(deadline) if self.returned.wait_until(&mut state, deadline).timed_out() => {
                    return Err(Error::Deadline);
                }
                Some(_) => {}
            }
        }
    }

    /// Waits until the unit is durable, or cannot become it any more.
    fn settle(&self, unit: u64, deadline: Option<Instant>) -> Result<()> {
        let mut key = None;
        loop {
            {
                let state = self.lock();
                match state.core.latch() {
                    Some(latch @ (Latch::Failed { .. } | Latch::Stopped)) => {
                        return Err(latch.refusal());
                    }
                    _ if state.core.durable().unit >= unit => break,
                    _ => {}
                }
            }
            if !self.drive(unit) {
                let last = self.lock().core.last_seq();
                self.waiters.register(&mut key, For::Durable(last), &thread_waker());
                if self.lock().core.durable().unit < unit && !park(deadline) {
                    return Err(Error::Deadline);
                }
            }
        }
        if let Some(key) = key {
            self.waiters.remove(key);
        }
        Ok(())
    }

    /// Everything is durable: leaves the directory as a closed log's.
    fn end(&self, committer: &mut Committer) -> Result<()> {
        let disk = &*self.options.disk;
        let unused = self.runway.close();
        let _changing = self.changing.lock();
        if let Some((number, _)) = unused {
            disk.unlink(&layout::segment(&self.dir, number))?;
            disk.sync_dir(&self.dir)?;
        }
        committer.end_file(self)?;
        let newest = self.segments.newest().ok_or(Error::Closed)?;
        for segment in self.segments.all() {
            let state = segment.state.read();
            let unfooted = state.full && !state.footed;
            drop(state);
            if unfooted && segment.number() != newest.number() {
                let file = disk.open(&segment.path, Open::write())?;
                recovery::write_footer(&*file, &segment)?;
            }
        }
        let mut manifest = self.manifest.lock();
        let state = newest.state.read();
        manifest.clean = Some(End {
            segment: newest.number(),
            offset: state.end,
            seq: state.last_seq,
            chain: committer.chain(),
        });
        manifest.write(disk, &self.dir)
    }
}

/// Tells everybody when the thread that commits panics: the committer is gone with it.
struct Watch<'a>(&'a Shared);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stopped(true);
        }
    }
}

impl Work for Shared {
    fn commit(&self) {
        self.queued.store(false, SeqCst);
        let mut state = self.lock();
        if let Some(committer) = state.committer.take() {
            self.run_commits(state, committer, None);
        }
    }

    fn upkeep(&self) {
        self.upkeep_queued.store(false, SeqCst);
        if let Err(error) = crate::upkeep::upkeep(self) {
            tracing::error!(%error, "slow work failed");
            self.fail(error);
        }
    }

    fn period(&self) {
        let mut state = self.lock();
        state.period_runs = false;
        let unit = state.core.last_unit();
        state.core.ask_sync(unit);
        if let Some(committer) = state.committer.take() {
            self.run_commits(state, committer, None);
        }
    }

    fn stopped(&self, panicked: bool) {
        let mut state = self.lock();
        state.core.set_latch(Latch::Stopped);
        state.committer_lost |= panicked && state.committer.is_none();
        drop(state);
        self.returned.notify_all();
        self.published.set_latched();
        self.wake_all();
    }
}
