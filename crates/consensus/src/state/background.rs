//! Background work of one log: jobs that no caller waits for, on one thread.
//!
//! The thread starts with the first job and ends when the queue is empty, so an idle log has none.
//! A log has at most one thread, and each kind of job is queued at most once: both are bounded.
//!
//! # Rules for a job
//!
//! A job runs without any lock of its scheduler. It splits its work into steps. Between them it
//! calls [`Background::is_stopping`], and returns [`StorageError::Closed`] once that is `true`. It
//! sleeps only in [`Background::pause`]. So [`Background::stop`] returns after at most one step
//! (for a job that waits for durability: one sync). A long job returns [`JobOutcome::RunAgain`]
//! from time to time, so that the other kinds get their turn.
//!
//! An error or a panic ends the job, is logged and counted, and stops neither the thread nor the
//! log. The code that scheduled the job decides when to retry.
//!
//! With a manual engine there is no thread: [`schedule`] runs the job before it returns.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::storage_error::StorageError;

/// The kinds of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// Takes a checkpoint of the index, if one is due.
    Checkpoint,
    /// Drops segments that are not worth keeping.
    Reclaim,
}

/// The request of a job when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobOutcome {
    Done,
    /// Run the job again, after the jobs that are queued now.
    RunAgain,
}

/// Runs the jobs of one log.
pub(crate) trait JobRunner: Send + Sync + 'static {
    fn background(&self) -> &Background;
    fn run_job(self: &Arc<Self>, job: Job) -> Result<JobOutcome, StorageError>;
}

/// The queue and the thread of one log.
#[derive(Debug, Default)]
pub(crate) struct Background {
    state: Mutex<QueueState>,
    stopping: AtomicBool,
    stopped: Condvar,
    failures: AtomicU64,
    /// Jobs run on the thread that schedules them.
    inline: bool,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Queued jobs, without duplicates.
    queue: VecDeque<Job>,
    running: bool,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Creates an empty queue. `inline` is for logs on a manual engine, which have no thread.
    pub(crate) fn new(inline: bool) -> Self {
        Self { inline, ..Self::default() }
    }

    /// Whether jobs must end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Whether jobs run on the thread that schedules them.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline
    }

    /// Returns [`StorageError::Closed`] once jobs must end.
    pub(crate) fn go_on(&self) -> Result<(), StorageError> {
        if self.is_stopping() { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// Sleeps, for a job that throttles itself. Returns [`StorageError::Closed`] at once when the
    /// job must end.
    pub(crate) fn pause(&self, time: Duration) -> Result<(), StorageError> {
        let deadline = Instant::now() + time;
        let mut state = self.state.lock();
        while !self.is_stopping() && !self.stopped.wait_until(&mut state, deadline).timed_out() {}
        drop(state);
        self.go_on()
    }

    /// The number of jobs that ended with an error or a panic.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Rejects further jobs, and waits until the running one has ended. Does not wait when called
    /// by a job, or by a waker that a job calls.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        self.stopping.store(true, SeqCst);
        state.queue.clear();
        let thread = state.thread.take();
        drop(state);
        self.stopped.notify_all();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // Its panics were caught and logged.
            drop(thread.join());
        }
    }

    /// Takes the next job. `None` ends the thread: the caller must not run another job.
    fn take(&self) -> Option<Job> {
        let mut state = self.state.lock();
        let job = state.queue.pop_front();
        state.running = job.is_some();
        job
    }

    fn ended(&self, job: Job, outcome: std::thread::Result<Result<JobOutcome, StorageError>>) {
        match outcome {
            Ok(Ok(JobOutcome::Done)) => {}
            Ok(Ok(JobOutcome::RunAgain)) => self.queue(&mut self.state.lock(), job),
            Ok(Err(_)) if self.is_stopping() => {}
            Ok(Err(error)) => {
                self.failures.fetch_add(1, Relaxed);
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    ?job,
                    "background job failed"
                );
            }
            Err(_) => {
                self.failures.fetch_add(1, Relaxed);
                tracing::error!(?job, "background job panicked");
            }
        }
    }

    fn queue(&self, state: &mut QueueState, job: Job) {
        if !self.is_stopping() && !state.queue.contains(&job) {
            state.queue.push_back(job);
        }
    }
}

/// Queues a job, unless it is queued already, and starts the thread if there is none. The caller
/// holds no lock that the job takes.
pub(crate) fn schedule<W: JobRunner>(owner: &Arc<W>, job: Job) {
    let background = owner.background();
    let mut state = background.state.lock();
    background.queue(&mut state, job);
    if state.running || state.queue.is_empty() {
        return;
    }
    state.running = true;
    if background.inline {
        drop(state);
        return run(owner);
    }
    let worker = Arc::clone(owner);
    let thread = std::thread::Builder::new().name("esker-background".into());
    match thread.spawn(move || run(&worker)) {
        // The previous thread has left its loop, so dropping its handle loses nothing.
        Ok(thread) => state.thread = Some(thread),
        Err(error) => {
            state.running = false;
            state.queue.clear();
            background.failures.fetch_add(1, Relaxed);
            tracing::warn!(%error, ?job, "failed to spawn a thread for a background job");
        }
    }
}

fn run<W: JobRunner>(owner: &Arc<W>) {
    let background = owner.background();
    while let Some(job) = background.take() {
        background.ended(job, catch_unwind(AssertUnwindSafe(|| owner.run_job(job))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    type Run = dyn Fn(&Background, usize) -> Result<JobOutcome, StorageError> + Send + Sync;

    /// Counts its runs; each run calls the test's function.
    struct Probe {
        background: Background,
        runs: AtomicUsize,
        each: Box<Run>,
    }

    impl JobRunner for Probe {
        fn background(&self) -> &Background {
            &self.background
        }

        fn run_job(self: &Arc<Self>, _: Job) -> Result<JobOutcome, StorageError> {
            (self.each)(&self.background, self.runs.fetch_add(1, SeqCst))
        }
    }

    fn probe(
        inline: bool,
        each: impl Fn(&Background, usize) -> Result<JobOutcome, StorageError> + Send + Sync + 'static,
    ) -> Arc<Probe> {
        let (background, runs) = (Background::new(inline), AtomicUsize::new(0));
        Arc::new(Probe { background, runs, each: Box::new(each) })
    }

    fn wait_until(holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < deadline, "waited for a minute");
            std::thread::yield_now();
        }
    }

    fn is_idle(probe: &Probe) -> bool {
        let state = probe.background.state.lock();
        !state.running && state.queue.is_empty()
    }

    #[test]
    fn an_idle_log_has_no_thread_and_a_queued_job_runs_once() {
        let locks = Arc::new(Mutex::new(()));
        let held = locks.lock();
        let waits = Arc::clone(&locks);
        let probe = probe(false, move |_, _| {
            drop(waits.lock());
            Ok(JobOutcome::Done)
        });
        assert!(probe.background.state.lock().thread.is_none());
        schedule(&probe, Job::Checkpoint);
        wait_until(|| probe.runs.load(SeqCst) == 1);
        (0..10).for_each(|_| schedule(&probe, Job::Checkpoint));
        drop(held);
        wait_until(|| is_idle(&probe));
        assert_eq!(probe.runs.load(SeqCst), 2);
        // The thread held a reference, so it has ended.
        wait_until(|| Arc::strong_count(&probe) == 1);
        schedule(&probe, Job::Checkpoint);
        wait_until(|| probe.runs.load(SeqCst) == 3);
    }

    #[test]
    fn a_panic_or_an_error_is_counted_and_the_next_job_runs() {
        for inline in [false, true] {
            let probe = probe(inline, |_, run| match run {
                0 => panic!("on purpose"),
                1 => Err(StorageError::Closed),
                2 | 3 => Ok(JobOutcome::RunAgain),
                _ => Ok(JobOutcome::Done),
            });
            for runs in [1, 2, 5] {
                schedule(&probe, Job::Checkpoint);
                wait_until(|| probe.runs.load(SeqCst) == runs && is_idle(&probe));
            }
            assert_eq!(probe.background.failures(), 2);
        }
    }

    #[test]
    fn stop_ends_a_paused_job_and_takes_no_other() {
        let ended = Arc::new(AtomicUsize::new(0));
        let ends = Arc::clone(&ended);
        let probe = probe(false, move |background, _| {
            let broken_off = background.pause(Duration::from_secs(3600));
            // Longer than a `stop` takes that does not wait for this thread.
            std::thread::sleep(Duration::from_millis(200));
            ends.fetch_add(1, SeqCst);
            broken_off.map(|()| JobOutcome::Done)
        });
        schedule(&probe, Job::Checkpoint);
        wait_until(|| probe.runs.load(SeqCst) == 1);
        schedule(&probe, Job::Checkpoint);
        probe.background.stop();
        assert_eq!(ended.load(SeqCst), 1, "it waits for what is under way");
        assert!(is_idle(&probe));
        schedule(&probe, Job::Checkpoint);
        assert_eq!((probe.runs.load(SeqCst), probe.background.failures()), (1, 0));
        assert_eq!(Arc::strong_count(&probe), 1, "the thread is joined");
    }

    #[test]
    fn a_job_may_stop_its_own_worker() {
        let probe = probe(false, |background, _| {
            background.stop();
            Ok(JobOutcome::RunAgain)
        });
        schedule(&probe, Job::Checkpoint);
        wait_until(|| is_idle(&probe));
        assert_eq!(probe.runs.load(SeqCst), 1);
    }
}
