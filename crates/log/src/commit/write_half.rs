//! The writing half of an open log: the state shared by appenders, committers and maintenance.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use esker_disk::{Dir, Lock};
use parking_lot::{Condvar, Mutex, ReentrantMutex};

use crate::base::error::Result;
use crate::base::options::{Options, Retention};
use crate::commit::ages::Begin;
use crate::commit::callbacks::Callbacks;
use crate::commit::committer::Committer;
use crate::commit::core::{Core, Job};
use crate::commit::log_space::LogSpace;
use crate::commit::pending_work::PendingWork;
use crate::commit::segment_set::SegmentSet;
use crate::commit::space_request::SpaceRequests;
use crate::format::{Footer, LogId, Salt};
use crate::runtime::clock::STEP_MIN_MS;
use crate::runtime::counters::Counters;
use crate::runtime::deferred_wakes::wake;
use crate::runtime::engine::Engine;
use crate::runtime::waiters::{Waiters, WaitingCallers};
use crate::staging::fill_tracker::FillTracker;
use crate::staging::tail_cache::TailCache;
use crate::staging::terminal::TerminalCell;
use crate::staging::watermark::DurableWatermark;
use crate::store::file_mode::FileMode;
use crate::store::manifest::Manifest;
use crate::store::watermark_page::WatermarkPage;

pub(crate) struct WriteHalf {
    pub(crate) id: LogId,
    /// The directory that was opened and locked, even if it was moved since.
    pub(crate) dir: Arc<dyn Dir>,
    pub(crate) options: Options,
    pub(crate) mode: FileMode,
    pub(crate) engine: Engine,
    pub(crate) state: Mutex<State>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) callbacks: Callbacks,
    pub(crate) watermark: Arc<DurableWatermark>,
    pub(crate) terminal: Arc<TerminalCell>,
    pub(crate) segments: SegmentSet,
    pub(crate) space: LogSpace,
    pub(crate) pending: PendingWork,
    pub(crate) tail: Arc<TailCache>,
    pub(crate) counters: Counters,
    pub(crate) fill_tracker: Arc<[FillTracker]>,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) lock: Mutex<Option<Box<dyn Lock>>>,
    /// Read by other processes.
    pub(crate) watermark_page: Mutex<WatermarkPage>,
    /// Held while a checkpoint is written, which may wait for commits and so wake tasks; the number
    /// of those begun in this session.
    pub(crate) checkpoints: ReentrantMutex<AtomicU64>,
    /// Whether a snapshot is being received.
    pub(crate) receiving: Arc<AtomicBool>,
    /// Notified when the committer is back and when an in-flight commit ends.
    pub(crate) committer_idle: Condvar,
    pub(crate) closed: Arc<AtomicBool>,
    pub(crate) weak_self: Weak<WriteHalf>,
}

impl std::fmt::Debug for WriteHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let durable = self.watermark.seq();
        f.debug_struct("Log")
            .field("dir", &self.dir.path())
            .field("durable", &durable)
            .finish_non_exhaustive()
    }
}

/// The state under the one lock that appenders and committers share. It is never held across I/O.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) core: Core,
    /// `None` while a thread prepares a commit.
    pub(crate) committer: Option<Box<Committer>>,
    /// The committer was lost in a panic and will not come back.
    pub(crate) committer_lost: bool,
    /// The timer of the policy runs.
    pub(crate) timer_armed: bool,
    pub(crate) space: SpaceRequests,
    /// Callers that run commits while they wait. They are in no wait queue.
    pub(crate) committing_callers: WaitingCallers,
    /// Emptied lists, for reuse: at most one for each thread that ever drove a commit concurrently
    /// with another.
    pub(crate) wakers: Vec<Vec<Waker>>,
}

/// Runs the callbacks of a log, which are the caller's code as wakers are: a component defers both
/// until it has released its locks.
struct RunCallbacks(Arc<WriteHalf>);

impl Wake for RunCallbacks {
    fn wake(self: Arc<Self>) {
        self.0.run_callbacks();
    }
}

impl State {
    /// Returns the next job, and the committer to prepare it; `None` when there is no job, or
    /// another thread is preparing one.
    pub(crate) fn next_job(&mut self) -> Option<(Job, Box<Committer>)> {
        let committer = self.committer.take()?;
        let Some(job) = self.core.next_job() else {
            self.committer = Some(committer);
            return None;
        };
        Some((job, committer))
    }
}

impl WriteHalf {
    pub(crate) fn fill_tracker(&self, unit: u64) -> &FillTracker {
        &self.fill_tracker[(unit % self.fill_tracker.len() as u64) as usize]
    }

    /// Changes the manifest, durably. If that fails, the manifest in memory stays unchanged.
    pub(crate) fn change_manifest(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        self.change_manifest_with(None, change)
    }

    /// As [`WriteHalf::change_manifest`], and writes the footer of the segment where the log ends.
    pub(crate) fn change_manifest_with(
        &self,
        footer: Option<(&Footer, Salt)>,
        change: impl FnOnce(&mut Manifest),
    ) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let mut next = *manifest;
        change(&mut next);
        match next.write_with(&*self.dir, footer) {
            // The footer is optional.
            Err(error) if error.is_no_space() && footer.is_some() => next.write(&*self.dir)?,
            written => written?,
        }
        *manifest = next;
        Ok(())
    }

    /// Queues the log for maintenance.
    pub(crate) fn want_maintenance(&self) {
        if self.pending.queue_maintenance()
            && !self.engine.is_manual()
            && let Some(log) = self.weak_self.upgrade()
        {
            self.engine.maintain(log);
        }
    }

    /// Queues the log with the engine for a commit, whether or not there is a job.
    pub(crate) fn queue_commit(&self) {
        if self.pending.queue_commit() {
            match self.weak_self.upgrade() {
                Some(log) => self.engine.commit(log),
                None => self.pending.begin_commit(),
            }
        }
    }

    /// Wakes everything that waits: the log accepts nothing any more.
    pub(crate) fn wake_all(&self) {
        self.waiters.wake_all();
        self.wake_callbacks();
    }

    /// Has a thread of the engine run the callbacks that are due, if there are any; runs them where
    /// the engine is stopped, when tasks are woken. A callback without an outcome is not due: after
    /// a close that timed out, commits in flight may still end.
    pub(crate) fn wake_callbacks(&self) {
        let is_due = self.callbacks.first().is_some_and(|first| self.outcome(first).is_some());
        if !is_due {
            return;
        }
        match self.weak_self.upgrade().filter(|_| self.engine.is_stopped()) {
            Some(log) => wake(Waker::from(Arc::new(RunCallbacks(log)))),
            None => self.queue_commit(),
        }
    }

    /// Runs the callbacks that are due, unless another thread does.
    pub(crate) fn run_callbacks(&self) {
        self.callbacks.run(|seq| self.outcome(seq));
    }

    pub(crate) fn retention(&self) -> Retention {
        self.segments.retention()
    }

    /// Sets the retention, and requests the maintenance that obeys it.
    pub(crate) fn set_retention(&self, retention: Retention) {
        self.segments.set_retention(retention);
        self.count_ages();
        self.pending.request_rotation();
        self.want_maintenance();
    }

    /// Counts the ages of records from now on if the retention needs them and they are not counted
    /// yet. Warns where a stored time is ahead of the clock.
    pub(crate) fn count_ages(&self) {
        // Before the lock, which commits take: a step of the clock is logged.
        let (now, wall_ms) = (self.engine.now(), self.engine.wall_ms());
        let mut ages = self.segments.lock_ages();
        let mut newest_ms = 0;
        let begin = ages.set_limit(self.retention().age, || {
            // A commit whose records are not in the table yet is noted after this.
            let newest = self.segments.table().newest();
            let state = newest.as_ref().map(|newest| newest.state.read());
            let last_seq = state.as_ref().map_or(0, |state| state.last_seq);
            if last_seq > self.segments.trim_point().low().seq {
                newest_ms = state.as_ref().map_or(0, |state| state.time_ms);
            }
            Begin { now, wall_ms, last_seq }
        });
        drop(ages);
        let ahead = begin.map_or(0, |begin| newest_ms.saturating_sub(begin.wall_ms));
        if ahead >= STEP_MIN_MS {
            tracing::warn!(
                dir = %self.dir.path().display(),
                seconds = ahead / 1000,
                "newest record is ahead of the wall clock; such records age only while the log is open"
            );
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }
}
