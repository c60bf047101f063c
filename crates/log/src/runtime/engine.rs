//! The engine: the commit threads, shared by any number of logs.
//!
//! A log with something to commit is in the queue once, and once more when its timer expired, so
//! the queue is bounded by the number of open logs.
//!
//! Slow work, which is preparing segments and dropping old ones, has a thread of its own, so that
//! no commit queues after it. Timers have a thread of their own, so that a commit on a disk that
//! hangs does not delay those of other logs. Cold reads for tasks have threads that start with the
//! first such read.
//!
//! A *manual* engine has no thread: its owner calls [`Engine::run`] and [`Engine::advance`].
//! Waiting callers drive their own commits, so that everything happens in a known order on one
//! thread. It is for tests, and for programs that want no threads.
//!
//! A child that `fork` makes has a copy of the queues and none of the threads. There an engine does
//! nothing, and none is started.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use esker_disk::process;
use parking_lot::{Condvar, Mutex};

use crate::runtime::clock::Clock;

/// The most threads for reads.
const READ_THREADS_MAX: usize = 3;

/// Work that the engine does for the writing side of a log.
pub(crate) trait CommitWork: Send + Sync {
    /// Runs the commits that were requested.
    fn commit(&self);
    /// Does the maintenance that is due.
    fn maintain(&self);
    /// Runs when the period of the policy is over.
    fn period(&self);
    /// The engine stopped, or panicked while it worked for this log.
    fn stopped(&self, panicked: bool);
}

/// Work that the engine does for readers of files.
pub(crate) trait ReadWork: Send + Sync {
    /// Loads the next chunk in the queue.
    fn load(&self);
    /// Runs after segments below this number left the log.
    fn dropped_below(&self, segment: u64);
    /// The engine stopped, or panicked while it worked for these readers.
    fn stopped(&self);
}

/// A handle to the commit threads. Cheap to clone; the threads end with the last clone. In a child
/// that `fork` makes it does nothing.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    _owner: Option<Arc<Owner>>,
}

/// Stops the threads when the last handle is dropped.
#[derive(Debug)]
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.stop();
        if process::is_forked() {
            // Another thread may have been changing what this would free.
            std::mem::forget(Arc::clone(&self.0));
        }
    }
}

struct Shared {
    queues: Mutex<Queues>,
    commits: Condvar,
    maintenance: Condvar,
    reads: Condvar,
    timers: Condvar,
    clock: Clock,
    threads: usize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("threads", &self.threads).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Queues {
    commits: VecDeque<Due>,
    maintenance: VecDeque<Arc<dyn CommitWork>>,
    reads: VecDeque<Arc<dyn ReadWork>>,
    /// The number of threads for reads that were started.
    readers: usize,
    timers: BinaryHeap<Reverse<Timer>>,
    /// The logs on this engine, and below the read sources, to notify when it stops.
    logs: Vec<Weak<dyn CommitWork>>,
    sources: Vec<Weak<dyn ReadWork>>,
    stopped: bool,
}

/// The reason why a log is queued.
enum Due {
    Commit(Arc<dyn CommitWork>),
    Period(Arc<dyn CommitWork>),
}

impl Due {
    fn log(&self) -> &dyn CommitWork {
        match self {
            Self::Commit(log) | Self::Period(log) => &**log,
        }
    }

    fn run(&self) {
        match self {
            Self::Commit(log) => log.commit(),
            Self::Period(log) => log.period(),
        }
    }
}

struct Timer {
    at: Duration,
    log: Weak<dyn CommitWork>,
    what: TimedCall,
}

/// The call that is due at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimedCall {
    Period,
    Maintenance,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl Engine {
    /// Starts an engine with this many commit threads, at least one, one thread for slow work and
    /// one for timers.
    ///
    /// # Errors
    /// An error of the system when it fails to start a thread;
    /// [`Refusal::Forked`](esker_disk::Refusal::Forked) in a child that `fork` made.
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Engine, Log};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// let engine = Engine::new(2).expect("threads");
    /// let orders = Log::builder(dir.join("orders")).engine(engine.clone()).open()?;
    /// let audit = Log::builder(dir.join("audit")).engine(engine).open()?; // the same threads
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn new(threads: usize) -> std::io::Result<Self> {
        process::register()?;
        let (shared, owner) = Shared::real(threads.max(1));
        for _ in 0..shared.threads {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("esker-commit".into());
            thread.spawn(move || shared.commit_thread())?;
        }
        let slow = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("esker-maintain".into());
        thread.spawn(move || slow.maintenance_thread())?;
        let timer = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("esker-timer".into());
        thread.spawn(move || timer.timer_thread())?;
        Ok(Self { shared, _owner: Some(owner) })
    }

    /// An engine without threads, whose own clocks only [`Engine::advance`] and
    /// [`Engine::set_wall_clock`] move.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Engine, Log};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let engine = Engine::manual();
    /// let log = Log::builder(dir.path().join("log")).engine(engine.clone()).open()?;
    /// let ticket = log.append("a record")?;
    /// drop(ticket.clone()); // a dropped ticket requests a commit, and no thread runs it
    /// assert!(!ticket.is_durable());
    /// engine.run();
    /// assert!(ticket.is_durable());
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn manual() -> Self {
        // Where children cannot be recognised, no log is opened.
        let _ = process::register();
        Self { shared: Arc::new(Shared::new(Clock::manual(), 0)), _owner: None }
    }

    /// An engine that only reads and has no thread before the first read.
    pub(crate) fn for_reads() -> Self {
        let (shared, owner) = Shared::real(0);
        Self { shared, _owner: Some(owner) }
    }

    /// The engine that all logs of this process share unless they are given another.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn shared() -> std::io::Result<Self> {
        static SHARED: OnceLock<Engine> = OnceLock::new();
        process::register()?;
        if let Some(engine) = SHARED.get() {
            return Ok(engine.clone());
        }
        // Threads that call it at the same time may each start one; all get the same.
        let started = Self::new(4)?;
        Ok(SHARED.get_or_init(|| started).clone())
    }

    /// Runs everything that is queued, on this thread. Meant for a manual engine; on another it
    /// only takes work from the threads.
    pub fn run(&self) {
        while !process::is_forked() {
            let (commit, maintenance) = {
                let mut queues = self.shared.queues.lock();
                (queues.commits.pop_front(), queues.maintenance.pop_front())
            };
            if commit.is_none() && maintenance.is_none() {
                return;
            }
            if let Some(due) = commit {
                due.run();
            }
            if let Some(log) = maintenance {
                log.maintain();
            }
        }
    }

    /// Moves the clocks of a manual engine forward and runs what is due, timers first.
    pub fn advance(&self, by: Duration) {
        if process::is_forked() {
            return;
        }
        self.shared.clock.advance(by);
        loop {
            let due = self.shared.queues.lock().pop_timer(self.now());
            match due {
                Some((log, TimedCall::Period)) => log.period(),
                Some((log, TimedCall::Maintenance)) => log.maintain(),
                None => break,
            }
        }
        self.run();
    }

    /// Sets the wall clock of a manual engine, which gives commits their times and begins in 1970.
    /// Timers do not see it, nor do ages of records. Changes nothing on another engine.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use esker_log::{Engine, Log, Start};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let engine = Engine::manual();
    /// let log = Log::builder(dir.path().join("log")).engine(engine.clone()).open()?;
    /// let in_2001 = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    /// engine.set_wall_clock(in_2001);
    /// log.append("a record")?.blocking_wait()?;
    /// let batch = log.stream(Start::Oldest)?.try_next()?.unwrap();
    /// assert_eq!(batch.iter().next().unwrap().time(), Some(in_2001));
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn set_wall_clock(&self, time: SystemTime) {
        self.shared.clock.set_wall(time);
    }

    /// Stops the engine. From then on every operation but reads of a log on it returns
    /// [`Error::Stopped`](crate::Error::Stopped).
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Whether [`Engine::manual`] created it: it has no threads, and the waiting caller does the
    /// work.
    pub fn is_manual(&self) -> bool {
        self.shared.clock.is_manual()
    }

    /// The time since the engine was created. Counts time in which the system is suspended.
    pub(crate) fn now(&self) -> Duration {
        self.shared.now()
    }

    /// The wall clock in milliseconds since 1970. Reports a step of it.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.shared.clock.wall_ms()
    }

    /// Registers a log to be notified when the engine stops.
    pub(crate) fn register(&self, log: Weak<dyn CommitWork>) {
        let mut queues = self.shared.queues.lock();
        queues.logs.retain(|log| log.strong_count() > 0);
        queues.logs.push(Weak::clone(&log));
        let stopped = queues.stopped;
        drop(queues);
        if let Some(log) = log.upgrade().filter(|_| stopped) {
            log.stopped(false);
        }
    }

    /// Registers a source of reads to be notified when the engine stops.
    pub(crate) fn register_reads(&self, source: Weak<dyn ReadWork>) {
        let mut queues = self.shared.queues.lock();
        queues.sources.retain(|source| source.strong_count() > 0);
        queues.sources.push(Weak::clone(&source));
        let stopped = queues.stopped;
        drop(queues);
        if let Some(source) = source.upgrade().filter(|_| stopped) {
            source.stopped();
        }
    }

    /// Queues a log for a commit. The caller ensures that it is queued only once. A stopped engine
    /// has notified the log, or is about to.
    pub(crate) fn commit(&self, log: Arc<dyn CommitWork>) {
        let mut queues = self.shared.queues.lock();
        if !queues.stopped {
            queues.commits.push_back(Due::Commit(log));
            drop(queues);
            self.shared.commits.notify_one();
        }
    }

    /// Queues a log for slow work. The caller ensures that it is queued only once.
    pub(crate) fn maintain(&self, log: Arc<dyn CommitWork>) {
        let mut queues = self.shared.queues.lock();
        if !queues.stopped {
            queues.maintenance.push_back(log);
            drop(queues);
            self.shared.maintenance.notify_one();
        }
    }

    /// Queues a source for a read. The caller ensures that it is queued only once. The threads for
    /// reads start with the first reads. Returns `false` where there is none.
    pub(crate) fn read(&self, source: Arc<dyn ReadWork>) -> bool {
        let mut queues = self.shared.queues.lock();
        if queues.stopped || self.is_manual() {
            return false;
        }
        if queues.readers < READ_THREADS_MAX {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("esker-read".into());
            queues.readers += usize::from(thread.spawn(move || shared.read_thread()).is_ok());
        }
        if queues.readers > 0 {
            queues.reads.push_back(source);
            self.shared.reads.notify_one();
        }
        queues.readers > 0
    }

    /// Whether the engine is stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.queues.lock().stopped
    }

    /// Schedules a call of the log's `period` at this time.
    pub(crate) fn at(&self, at: Duration, log: Weak<dyn CommitWork>) {
        self.schedule(Timer { at, log, what: TimedCall::Period });
    }

    /// Schedules maintenance of the log at this time.
    pub(crate) fn maintain_at(&self, at: Duration, log: Weak<dyn CommitWork>) {
        self.schedule(Timer { at, log, what: TimedCall::Maintenance });
    }

    fn schedule(&self, timer: Timer) {
        let mut queues = self.shared.queues.lock();
        let sooner = queues.timers.peek().is_none_or(|Reverse(first)| timer.at < first.at);
        queues.timers.push(Reverse(timer));
        drop(queues);
        if sooner {
            self.shared.timers.notify_one();
        }
    }
}

impl Queues {
    fn pop_timer(&mut self, now: Duration) -> Option<(Arc<dyn CommitWork>, TimedCall)> {
        while self.timers.peek().is_some_and(|Reverse(timer)| timer.at <= now) {
            if let Some(Reverse(timer)) = self.timers.pop()
                && let Some(log) = timer.log.upgrade()
            {
                return Some((log, timer.what));
            }
        }
        None
    }
}

impl Shared {
    fn new(clock: Clock, threads: usize) -> Self {
        Self {
            queues: Mutex::default(),
            commits: Condvar::new(),
            maintenance: Condvar::new(),
            reads: Condvar::new(),
            timers: Condvar::new(),
            clock,
            threads,
        }
    }

    /// Creates the shared state for an engine with threads, which end when the owner is dropped.
    fn real(threads: usize) -> (Arc<Self>, Arc<Owner>) {
        let shared = Arc::new(Self::new(Clock::system(), threads));
        let owner = Arc::new(Owner(Arc::clone(&shared)));
        (shared, owner)
    }

    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn commit_thread(&self) {
        let mut queues = self.queues.lock();
        loop {
            if let Some(due) = queues.commits.pop_front() {
                drop(queues);
                guarded(|| due.run(), || due.log().stopped(false));
                drop(due);
                queues = self.queues.lock();
            } else if queues.stopped {
                return;
            } else {
                self.commits.wait(&mut queues);
            }
        }
    }

    fn timer_thread(&self) {
        let mut queues = self.queues.lock();
        while !queues.stopped {
            if let Some((log, what)) = queues.pop_timer(self.now()) {
                match what {
                    TimedCall::Period => {
                        queues.commits.push_back(Due::Period(log));
                        self.commits.notify_one();
                    }
                    TimedCall::Maintenance => {
                        queues.maintenance.push_back(log);
                        self.maintenance.notify_one();
                    }
                }
            } else if let Some(Reverse(timer)) = queues.timers.peek() {
                let wait = timer.at.saturating_sub(self.now());
                self.timers.wait_for(&mut queues, wait);
            } else {
                self.timers.wait(&mut queues);
            }
        }
    }

    fn maintenance_thread(&self) {
        self.serve(
            &self.maintenance,
            |queues| &mut queues.maintenance,
            |log| guarded(|| log.maintain(), || log.stopped(false)),
        );
    }

    fn read_thread(&self) {
        self.serve(
            &self.reads,
            |queues| &mut queues.reads,
            |source| guarded(|| source.load(), || source.stopped()),
        );
    }

    fn serve<W: ?Sized>(
        &self,
        more: &Condvar,
        queue: impl Fn(&mut Queues) -> &mut VecDeque<Arc<W>>,
        run: impl Fn(&W),
    ) {
        let mut queues = self.queues.lock();
        loop {
            if let Some(next) = queue(&mut queues).pop_front() {
                drop(queues);
                run(&next);
                drop(next);
                queues = self.queues.lock();
            } else if queues.stopped {
                return;
            } else {
                more.wait(&mut queues);
            }
        }
    }

    fn stop(&self) {
        if process::is_forked() {
            return;
        }
        let mut queues = self.queues.lock();
        queues.stopped = true;
        // Dropped at the end, without the lock: the last owner of a log may be here, and with it
        // callbacks, which its end calls.
        let _queued = (
            std::mem::take(&mut queues.commits),
            std::mem::take(&mut queues.maintenance),
            std::mem::take(&mut queues.reads),
        );
        queues.timers.clear();
        let logs = std::mem::take(&mut queues.logs);
        let sources = std::mem::take(&mut queues.sources);
        drop(queues);
        self.commits.notify_all();
        self.maintenance.notify_all();
        self.reads.notify_all();
        self.timers.notify_all();
        for log in logs.into_iter().filter_map(|log| log.upgrade()) {
            log.stopped(false);
        }
        for source in sources.into_iter().filter_map(|source| source.upgrade()) {
            source.stopped();
        }
    }
}

/// Runs work for one log. A panic in it stops that log and no other.
fn guarded(work: impl FnOnce(), stopped: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("engine thread panicked; the log, or its queued reads, are stopped");
        stopped();
    }
}
