//! Drives commits, on the thread of a waiting caller or of the engine.
//!
//! A caller that waits without a deadline runs the commit itself when no other thread has the
//! committer: waking another thread, and being woken by it, costs more than the rest of the call.

use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use esker_disk::planted::{Bug, is_planted};
use esker_disk::process;
use parking_lot::MutexGuard;

use crate::base::error::{Error, Result, Terminal, with_causes};
use crate::base::log_end::Mark;
use crate::base::log_error::LogError;
use crate::base::options::Policy;
use crate::commit::commit_io::CommitIo;
use crate::commit::committer::Committer;
use crate::commit::core::schedule::{Action, Event, Runner, schedule};
use crate::commit::core::{BrokenInvariant, Core, Job};
use crate::commit::maintenance::maintain;
use crate::commit::write_half::{State, WriteHalf};
use crate::runtime::deferred_wakes::{DeferredWakes, wake_threads_first};
use crate::runtime::engine::CommitWork;
use crate::runtime::waiters::WaitingCallers;
use crate::store::watermark_page::WatermarkPage;

impl WriteHalf {
    /// The outcome of a record; `None` while it is undecided.
    pub(crate) fn outcome(&self, seq: u64) -> Option<Result<(), LogError>> {
        if process::is_forked() {
            return Some(Err(LogError::Forked));
        }
        if self.watermark.seq() >= seq {
            return Some(Ok(()));
        }
        if !self.watermark.is_terminal() {
            return None;
        }
        let state = self.lock();
        if self.watermark.seq() >= seq {
            return Some(Ok(()));
        }
        match state.core.terminal() {
            Some(Terminal::Failed { cause, through }) if seq <= *through => {
                Some(Err(LogError::Io((**cause).clone())))
            }
            Some(
                terminal @ (Terminal::Failed { .. } | Terminal::Stopped | Terminal::Broken { .. }),
            ) => Some(Err(terminal.refusal())),
            Some(Terminal::Closed) | None => None,
        }
    }

    /// Reports an event, and does what the schedule says. Takes no lock if that is nothing, or in a
    /// child that `fork` made.
    #[inline(always)]
    pub(crate) fn on(&self, event: Event) {
        if schedule(self.options.policy, event) != Action::NOTHING && !process::is_forked() {
            self.on_locked(&mut self.lock(), event);
        }
    }

    /// Reports that a ticket was dropped before it resolved. Takes no lock if one of this unit or
    /// of a later one was dropped before: what was requested then covers it, and every event that
    /// gives the committer something to do, such as an accepted record, wakes it.
    #[inline]
    pub(crate) fn ticket_dropped(&self, unit: u64) {
        if !self.pending.is_dropped(unit) {
            self.on(Event::TicketDropped { unit });
            self.pending.drop_ticket(unit);
        }
    }

    /// As [`WriteHalf::on`], under the state lock. Returns whether the calling thread has to run
    /// the commits that are due.
    #[inline(always)]
    fn on_locked(&self, state: &mut State, event: Event) -> bool {
        let action = state.core.on(event);
        if let Some(after) = action.timer.filter(|_| !state.timer_armed) {
            self.arm_timer(state, after);
        }
        match action.run_by {
            Some(Runner::Engine) => self.wake_committer(state),
            Some(Runner::Caller) => return true,
            None => {}
        }
        false
    }

    /// Reports that records were accepted.
    #[inline]
    pub(crate) fn on_accepted(&self, state: &mut State) {
        let open_appends = state.core.open_appends();
        self.on_locked(state, Event::Accepted { open_appends });
    }

    /// Requests a commit through this unit, and runs the jobs for it that no other thread runs.
    /// Returns `false` if nothing was left but to wait for other threads. A caller with a deadline
    /// leaves the work to the engine, because a write cannot be interrupted.
    pub(crate) fn drive(&self, unit: u64, deadline: Option<Instant>) -> bool {
        let event = match self.runs_commits(deadline) {
            true => Event::TicketAwaited { unit },
            false => Event::TicketPolled { unit },
        };
        self.run_on(event, Until::Durable(unit))
    }

    /// Runs the next commit, if there is one, as [`WriteHalf::drive`] does.
    pub(crate) fn drive_one(&self, deadline: Option<Instant>) -> bool {
        let event = match self.runs_commits(deadline) {
            true => Event::RoomAwaited,
            false => Event::RoomPolled,
        };
        self.run_on(event, Until::One)
    }

    /// Whether a caller with this deadline may run commits.
    fn runs_commits(&self, deadline: Option<Instant>) -> bool {
        deadline.is_none() || self.engine.is_manual()
    }

    /// Reports an event, and runs commits if that is left to the caller.
    fn run_on(&self, event: Event, until: Until) -> bool {
        let mut state = self.lock();
        self.on_locked(&mut state, event) && self.run_commits(state, until)
    }

    pub(crate) fn strong_self(&self) -> Arc<WriteHalf> {
        self.weak_self.upgrade().unwrap_or_else(|| unreachable!("the caller holds a reference"))
    }

    /// Has a thread run the next job: ends the commit delay of a thread that waits, if enough
    /// callers are back, and otherwise queues the log with the engine. Does nothing if there is no
    /// job, or a thread is preparing one.
    #[inline]
    fn wake_committer(&self, state: &State) {
        if state.core.is_delaying() {
            if state.core.delay_is_met() {
                self.pending.end_delay();
            }
        } else if state.committer.is_some() && state.core.has_job() {
            self.queue_commit();
        }
    }

    /// Starts the timer that reports [`Event::TimerElapsed`].
    fn arm_timer(&self, state: &mut State, after: Duration) {
        state.timer_armed = true;
        let at = self.engine.now() + after;
        let log: Weak<dyn CommitWork> = self.weak_self.clone();
        self.engine.at(at, log);
    }

    /// Runs the jobs that no other thread runs, as far as `until` wants them. Returns whether there
    /// were any.
    fn run_commits<'a>(&'a self, mut state: MutexGuard<'a, State>, until: Until) -> bool {
        let mut wakers = state.wakers.pop().unwrap_or_default();
        let mut guard = PanicGuard { log: self, until, in_flight: None };
        until.count_in(&mut state.committing_callers, |callers| callers + 1);
        let mut any = false;
        // Without engine threads, the calling thread runs everything that was requested.
        let manual = self.engine.is_manual();
        while manual || until.wants(&state.core, any) {
            if !manual {
                let mine;
                (state, mine) = self.delay_commit(state);
                if !mine {
                    break;
                }
            }
            let Some((job, committer)) = state.next_job() else { break };
            any = true;
            let (back, io) = self.submit(state, job, committer, &mut guard);
            state = back;
            let Some(io) = io else { break };
            if manual {
                state = self.execute_several(state, io, &mut guard, &mut wakers);
            } else {
                // Another thread may commit what was staged meanwhile.
                self.on_locked(&mut state, Event::CommitterFree);
                state = self.execute(state, io, &mut wakers);
            }
            guard.in_flight = None;
        }
        self.committer_idle.notify_all();
        self.on_locked(&mut state, Event::CommitterFree);
        until.count_in(&mut state.committing_callers, |callers| callers.saturating_sub(1));
        state.wakers.push(wakers);
        drop(state);
        if self.watermark.is_terminal() {
            self.wake_all();
        }
        if manual && self.pending.is_maintenance_queued() {
            self.maintain();
        }
        any
    }

    /// Runs the commit delay where it is worthwhile. Returns `false` if another thread is already
    /// in the delay; that thread then commits.
    fn delay_commit<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> (MutexGuard<'a, State>, bool) {
        if state.core.is_delaying() {
            return (state, false);
        }
        if let Some(wait) = state.core.begin_delay() {
            self.pending.begin_delay();
            drop(state);
            let start = Instant::now();
            while !self.pending.is_delay_met() && start.elapsed() < wait {
                std::thread::yield_now();
            }
            state = self.lock();
            state.core.end_delay();
        }
        (state, true)
    }

    /// Prepares a job; `None` when that failed. The committer is back when this returns, unless it
    /// panics.
    fn submit<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        job: Job,
        mut committer: Box<Committer>,
        guard: &mut PanicGuard<'_>,
    ) -> (MutexGuard<'a, State>, Option<CommitIo>) {
        let (number, last) = (job.unit(), job.last_seq());
        guard.adds(number);
        let durable = state.core.durable();
        drop(state);
        let prepared = committer.prepare(self, job, durable);
        let mut state = self.lock();
        if committer.is_far_ahead() {
            self.on_locked(&mut state, Event::SegmentsUnsynced { unit: number });
        }
        state.committer = Some(committer);
        match prepared {
            Ok(io) => (state, Some(io)),
            Err(error) => {
                self.failed(&mut state, number, last, error);
                (state, None)
            }
        }
    }

    /// Does the I/O of an in-flight commit, and wakes the waiters of everything it made durable.
    fn execute<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        io: CommitIo,
        wakers: &mut Vec<Waker>,
    ) -> MutexGuard<'a, State> {
        let (number, last) = (io.job().unit(), io.job().last_seq());
        if state.core.has_failed() {
            // After a failure, only writes that were already submitted complete.
            state.core.fail(number);
            self.publish_terminal(&state);
            return state;
        }
        if is_planted(Bug::DurableBeforeSync) {
            self.watermark.publish(io.job().mark().position, io.job().mark().seq);
        }
        drop(state);
        let start = Instant::now();
        let outcome = io.execute(self);
        let took = start.elapsed();
        let units = io.into_units();
        let stored = outcome.and_then(|()| self.store_watermark(number));
        let mut state = self.lock();
        let before = state.core.durable();
        let page = match stored {
            Ok(page) => page,
            Err(error) => {
                self.failed(&mut state, number, last, error);
                return state;
            }
        };
        // Releases the staging buffer before the waiters wake: they may want to reuse it.
        units.into_iter().for_each(|units| state.core.return_units(units));
        let mark = match complete(&mut state.core, number, page.as_deref()) {
            Ok(Some(mark)) => mark,
            Ok(None) => return state,
            Err(BrokenInvariant(invariant)) => {
                self.failed(&mut state, number, last, Error::Internal { invariant });
                return state;
            }
        };
        drop(page);
        let moved = mark != before;
        self.watermark.publish(mark.position, mark.seq);
        self.publish_terminal(&state);
        let callers = self.waiters.take_callers(mark.seq, wakers);
        let space_waits = std::mem::take(&mut state.space.waits);
        state.core.commit_completed(callers, took);
        if self.waiters.has_readers() {
            // Waking thousands of readers takes long. The engine commits for the callers meanwhile.
            self.on_locked(&mut state, Event::CommitterFree);
        }
        drop(state);
        wake_threads_first(wakers);
        if space_waits || self.callbacks.first().is_some_and(|first| first <= mark.seq) {
            self.queue_commit();
        }
        self.waiters.wake_readers(mark.seq, wakers);
        if (moved && self.pending.is_rotation_pending())
            || self.space.preallocator().needs_maintenance()
        {
            self.want_maintenance();
        }
        self.lock()
    }

    /// Stores the watermark to which a job leads that did its I/O, before anyone learns of it: what
    /// was acknowledged is visible to other processes, also if this one is killed. Nothing is
    /// acknowledged until the job completes, and the page is held until then: so none that
    /// completes meanwhile moves the watermark past it.
    ///
    /// Under `OsBuffered` the I/O of the job stored it, and synced it.
    ///
    /// # Errors
    /// The store failed. The job counts as failed, too: a reader would not see what it wrote.
    fn store_watermark(&self, job: u64) -> Result<Option<MutexGuard<'_, WatermarkPage>>> {
        if self.options.policy == Policy::OsBuffered {
            return Ok(None);
        }
        let mut page = self.watermark_page.lock();
        // Without the state lock, which appends and queries take.
        let mark = self.lock().core.durable_with(job);
        page.store(mark)?;
        Ok(Some(page))
    }

    /// Imitates threads: submits everything that may be in flight at once, then completes it, every
    /// other time in reverse order.
    fn execute_several<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        first: CommitIo,
        guard: &mut PanicGuard<'_>,
        wakers: &mut Vec<Waker>,
    ) -> MutexGuard<'a, State> {
        let backwards = first.job().unit() % 2 == 1;
        let mut in_flight = vec![first];
        while let Some((job, committer)) = state.next_job() {
            let (back, io) = self.submit(state, job, committer, guard);
            state = back;
            match io {
                Some(io) => in_flight.push(io),
                None => break,
            }
        }
        if backwards {
            in_flight.reverse();
        }
        // Tasks are woken without a commit in flight: closing waits for all, and this thread may be
        // the one that a waker closes the log on.
        let wakes = DeferredWakes::new();
        for io in in_flight {
            state = self.execute(state, io, wakers);
        }
        drop(state);
        drop(wakes);
        self.lock()
    }
}

/// Accounts for a job that did its I/O, and that this page has, where it is stored. Returns how far
/// the log is durable, unless an earlier job is in flight.
fn complete(
    core: &mut Core,
    job: u64,
    page: Option<&WatermarkPage>,
) -> Result<Option<Mark>, BrokenInvariant> {
    if !core.complete(job)? {
        return Ok(None);
    }
    let mark = core.durable();
    match page.is_none_or(|page| page.has(mark)) {
        true => Ok(Some(mark)),
        false => Err(BrokenInvariant("a watermark is stored before it is published")),
    }
}

/// How far a thread drives commits.
#[derive(Debug, Clone, Copy)]
enum Until {
    /// Until no work is left.
    Idle,
    /// The next commit only.
    One,
    /// Until this unit is durable, or only other threads can make it so.
    Durable(u64),
}

impl Until {
    fn wants(self, core: &Core, any: bool) -> bool {
        match self {
            Self::Idle => true,
            Self::One => !any,
            Self::Durable(unit) => core.durable().unit < unit && core.next_job_helps(unit),
        }
    }

    /// Changes how many callers run commits and wait for the same.
    fn count_in(self, callers: &mut WaitingCallers, change: impl Fn(usize) -> usize) {
        match self {
            Self::Idle => {}
            Self::One => callers.for_room = change(callers.for_room),
            Self::Durable(_) => callers.for_durability = change(callers.for_durability),
        }
    }
}

/// Puts the log into the terminal state when the committing thread panics. Its in-flight commits
/// never complete, and the committer may be lost with it.
struct PanicGuard<'a> {
    log: &'a WriteHalf,
    until: Until,
    /// The commits that this thread submitted and that have not completed.
    in_flight: Option<RangeInclusive<u64>>,
}

impl PanicGuard<'_> {
    fn adds(&mut self, io: u64) {
        let first = self.in_flight.as_ref().map_or(io, |in_flight| *in_flight.start());
        self.in_flight = Some(first..=io);
    }
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if let Some(in_flight) = self.in_flight.take().filter(|_| std::thread::panicking()) {
            let mut state = self.log.lock();
            in_flight.for_each(|io| state.core.fail(io));
            self.until.count_in(&mut state.committing_callers, |callers| callers.saturating_sub(1));
            drop(state);
            self.log.stopped(true);
        }
    }
}

impl CommitWork for WriteHalf {
    fn commit(&self) {
        self.pending.begin_commit();
        self.preallocate_requested();
        self.run_commits(self.lock(), Until::Idle);
        self.run_callbacks();
    }

    fn maintain(&self) {
        self.pending.begin_maintenance();
        if let Err(error) = maintain(self) {
            tracing::error!(error = with_causes(&error), "maintenance failed");
            self.fail(error);
        }
    }

    fn period(&self) {
        let mut state = self.lock();
        state.timer_armed = false;
        if self.on_locked(&mut state, Event::TimerElapsed) {
            self.run_commits(state, Until::Idle);
        }
    }

    fn stopped(&self, panicked: bool) {
        let mut state = self.lock();
        state.core.set_terminal(Terminal::Stopped);
        self.terminal.set(state.core.terminal());
        state.committer_lost |= panicked && state.committer.is_none();
        drop(state);
        self.committer_idle.notify_all();
        self.watermark.set_terminal();
        self.wake_all();
    }
}
