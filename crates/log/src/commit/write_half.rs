//! The writing half of an open log: the state shared by appenders, committers and maintenance.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::Waker;

use esker_disk::{Dir, Lock};
use parking_lot::{Condvar, Mutex};

use crate::base::error::Result;
use crate::base::options::{Options, Retention};
use crate::commit::ages::{Ages, Begin};
use crate::commit::callbacks::Callbacks;
use crate::commit::committer::Committer;
use crate::commit::core::{Core, Job};
use crate::commit::preallocator::Preallocator;
use crate::commit::space_request::SpaceRequests;
use crate::format::{Footer, LogId, Salt};
use crate::runtime::clock::STEP_MIN_MS;
use crate::runtime::counters::Counters;
use crate::runtime::engine::{Engine, ReadWork};
use crate::runtime::waiters::{Waiters, WaitingCallers};
use crate::staging::fill_tracker::FillTracker;
use crate::staging::tail_cache::TailCache;
use crate::staging::terminal::TerminalCell;
use crate::staging::watermark::DurableWatermark;
use crate::store::file_mode::FileMode;
use crate::store::manifest::Manifest;
use crate::store::segment_table::SegmentTable;
use crate::store::space_reserve::Reserve;
use crate::store::trim_point::TrimPoint;
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
    pub(crate) segments: Arc<SegmentTable>,
    pub(crate) tail: Arc<TailCache>,
    pub(crate) preallocator: Preallocator,
    pub(crate) counters: Counters,
    pub(crate) fill_tracker: Arc<[FillTracker]>,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) trim_point: Arc<TrimPoint>,
    /// The numbers of the spare files.
    pub(crate) spares: Mutex<Vec<u64>>,
    pub(crate) lock: Mutex<Option<Box<dyn Lock>>>,
    /// Whether the log is in the engine's queue for a commit, and for maintenance.
    pub(crate) queued: AtomicBool,
    pub(crate) maintenance_queued: AtomicBool,
    /// Whether the log moved to another segment since the last maintenance.
    pub(crate) rotation_pending: AtomicBool,
    pub(crate) retention: Mutex<Retention>,
    pub(crate) ages: Mutex<Ages>,
    /// Read by other processes.
    pub(crate) watermark_page: Mutex<WatermarkPage>,
    /// How often segments were dropped and their space was freed.
    pub(crate) drops: AtomicU64,
    /// Held while the set of segments changes.
    pub(crate) segment_set_lock: Mutex<()>,
    /// Held while a checkpoint is written; the number of those begun in this session.
    pub(crate) checkpoints: Mutex<u64>,
    /// Whether a snapshot is being received.
    pub(crate) receiving: Arc<AtomicBool>,
    /// Held while space is preallocated.
    pub(crate) reserve: Mutex<Reserve>,
    /// The size of the reserve, readable while another thread preallocates.
    pub(crate) reserve_bytes: Arc<AtomicU64>,
    /// Other logs may use the reserve.
    pub(crate) shares: AtomicBool,
    /// Notified when the committer is back and when an in-flight commit ends.
    pub(crate) committer_idle: Condvar,
    /// As many callers are back as the commit delay waits for.
    pub(crate) delay_met: AtomicBool,
    /// The highest unit of which a ticket was dropped before it resolved.
    pub(crate) dropped_through: AtomicU64,
    pub(crate) closed: Arc<AtomicBool>,
    /// The readers to notify when segments are dropped.
    pub(crate) readers: Weak<dyn ReadWork>,
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
        if !self.maintenance_queued.swap(true, SeqCst)
            && !self.engine.is_manual()
            && let Some(log) = self.weak_self.upgrade()
        {
            self.engine.maintain(log);
        }
    }

    /// Queues the log with the engine for a commit, whether or not there is a job.
    pub(crate) fn queue_commit(&self) {
        if !self.queued.swap(true, SeqCst) {
            match self.weak_self.upgrade() {
                Some(log) => self.engine.commit(log),
                None => self.queued.store(false, SeqCst),
            }
        }
    }

    /// Wakes everything that waits: the log accepts nothing any more.
    pub(crate) fn wake_all(&self) {
        self.waiters.wake_all();
        self.wake_callbacks();
    }

    /// Has a thread of the engine run the callbacks that are due, if there are any; runs them where
    /// the engine is stopped. A callback without an outcome is not due: after a close that timed
    /// out, commits in flight may still end.
    pub(crate) fn wake_callbacks(&self) {
        let is_due = self.callbacks.first().is_some_and(|first| self.outcome(first).is_some());
        match is_due && self.engine.is_stopped() {
            true => self.run_callbacks(),
            false if is_due => self.queue_commit(),
            false => {}
        }
    }

    /// Runs the callbacks that are due, unless another thread does.
    pub(crate) fn run_callbacks(&self) {
        self.callbacks.run(|seq| self.outcome(seq));
    }

    pub(crate) fn retention(&self) -> Retention {
        *self.retention.lock()
    }

    /// Sets the retention, and requests the maintenance that obeys it.
    pub(crate) fn set_retention(&self, retention: Retention) {
        *self.retention.lock() = retention;
        self.count_ages();
        self.rotation_pending.store(true, SeqCst);
        self.want_maintenance();
    }

    /// Counts the ages of records from now on if the retention needs them and they are not counted
    /// yet. Warns where a stored time is ahead of the clock.
    pub(crate) fn count_ages(&self) {
        // Before the lock, which commits take: a step of the clock is logged.
        let (now, wall_ms) = (self.engine.now(), self.engine.wall_ms());
        let mut ages = self.ages.lock();
        let mut newest_ms = 0;
        let begin = ages.set_limit(self.retention().age, || {
            // A commit whose records are not in the table yet is noted after this.
            let newest = self.segments.newest();
            let state = newest.as_ref().map(|newest| newest.state.read());
            let last_seq = state.as_ref().map_or(0, |state| state.last_seq);
            if last_seq > self.trim_point.low().seq {
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
