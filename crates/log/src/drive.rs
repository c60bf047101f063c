//! Driving commits: on the thread of a caller that waits, or of the engine.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::committer::Committer;
use crate::core::Job;
use crate::engine::Work;
use crate::error::{Error, Latch, Result};
use crate::log::{Shared, State};
use crate::options::Policy;

/// Under policies that commit at once, what nobody asked for is committed after this time.
const LATEST: Duration = Duration::from_millis(10);

impl Shared {
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

    /// Commits until the unit is durable, or until nothing more was asked for.
    fn run_commits<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut committer: Box<Committer>,
        until: Option<u64>,
    ) {
        let mut watch = Watch { log: self, panicked: true };
        state.committing = Some(std::thread::current().id());
        let mut wakers = std::mem::take(&mut committer.wakers);
        loop {
            let durable = state.core.durable();
            // Without an engine's threads, whoever drives does all that was asked for.
            let done = until.is_some_and(|unit| durable.unit >= unit);
            if done && !self.engine.is_manual() {
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
                        if committer.is_far_ahead() {
                            state.core.ask_sync(unit.number);
                        }
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
            let turned = mark != durable && self.turned.load(SeqCst);
            if turned || self.runway.is_low(self.options.segment_size) {
                self.want_upkeep();
            }
            state = self.lock();
            if let Err(error) = told {
                self.latch(&mut state, error, mark.seq);
                break;
            }
        }
        watch.panicked = false;
        committer.wakers = wakers;
        state.committer = Some(committer);
        state.committing = None;
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
        let period = match state.core.policy() {
            Policy::Periodic(period) => Some(period),
            // Somebody may keep a ticket and never look at it.
            Policy::Always | Policy::OsBuffered => Some(LATEST),
            Policy::Batch(_) => None,
        };
        if let Some(period) = period.filter(|_| !state.period_runs) {
            state.period_runs = true;
            let at = self.engine.now() + period;
            let me: Weak<dyn Work> = self.me.clone();
            self.engine.at(at, me);
        }
    }
}

/// Tells everybody when the thread that commits panics: the committer is gone with it.
struct Watch<'a> {
    log: &'a Shared,
    panicked: bool,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.panicked {
            self.log.stopped(true);
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
        match state.core.policy() {
            Policy::OsBuffered => state.core.ask_write(unit),
            _ => state.core.ask_sync(unit),
        }
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
