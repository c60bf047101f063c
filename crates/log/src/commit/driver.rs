//! Driving commits: on the thread of a caller that waits, or of the engine.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use crate::base::error::{Error, Latch, Result};
use crate::base::options::Policy;
use crate::commit::commit_io::Flight;
use crate::commit::committer::Committer;
use crate::commit::core::{Core, Job};
use crate::commit::maintenance::maintain;
use crate::commit::write_half::{State, WriteHalf};
use crate::runtime::engine::CommitWork;
use crate::runtime::waiters::wake;

/// Under policies that commit at once, what nobody asked for is committed after this time.
const LATEST: Duration = Duration::from_millis(10);

impl WriteHalf {
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

    /// Asks for a commit through this unit, and drives what it takes on this thread, as far as others
    /// do not. `false` if there was nothing left to do but to wait for them. A caller with a deadline
    /// leaves it to the engine: a write cannot be broken off.
    pub(crate) fn drive(&self, unit: u64, deadline: Option<Instant>) -> bool {
        let mut state = self.lock();
        state.core.ask_sync(unit);
        self.run_or_kick(state, Until::Durable(unit), deadline)
    }

    /// Drives the next commit, if there is one, as [`WriteHalf::drive`] does.
    pub(crate) fn drive_one(&self, deadline: Option<Instant>) -> bool {
        self.run_or_kick(self.lock(), Until::One, deadline)
    }

    fn run_or_kick<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        until: Until,
        deadline: Option<Instant>,
    ) -> bool {
        if deadline.is_some() && !self.engine.is_manual() {
            self.kick(&state);
            return false;
        }
        self.run_commits(state, until)
    }

    pub(crate) fn me(&self) -> Arc<WriteHalf> {
        self.weak_self.upgrade().unwrap_or_else(|| unreachable!("somebody holds the log"))
    }

    /// Asks for a commit through this unit and leaves it to the engine.
    pub(crate) fn ask_and_kick(&self, unit: u64) {
        let mut state = self.lock();
        state.core.ask_sync(unit);
        self.kick(&state);
    }

    /// The caller does not wait: asks for what the policy owes it.
    pub(crate) fn unawaited(&self, unit: u64) {
        // These are owed nothing more than the append saw to.
        if matches!(self.options.policy, Policy::Batch(_) | Policy::Periodic(_)) {
            return;
        }
        let mut state = self.lock();
        state.core.ask_unawaited(unit);
        self.kick(&state);
    }

    /// Queues the log with the engine if there is work that nobody is on.
    pub(crate) fn kick(&self, state: &State) {
        if state.core.is_gathering() {
            return;
        }
        if state.committer.is_some() && state.core.has_job() && !self.queued.swap(true, SeqCst) {
            match self.weak_self.upgrade() {
                Some(me) => self.engine.commit(me),
                None => self.queued.store(false, SeqCst),
            }
        }
    }

    /// Commits what nobody else is on, as far as it is wanted; whether there was anything.
    fn run_commits<'a>(&'a self, mut state: MutexGuard<'a, State>, until: Until) -> bool {
        let mut wakers = state.wakers.pop().unwrap_or_default();
        let mut watch = Watch { log: self, flights: None };
        let mut any = false;
        // Without an engine's threads, whoever drives does all that was asked for.
        let manual = self.engine.is_manual();
        while manual || until.wants(&state.core, any) {
            if !manual {
                let mine;
                (state, mine) = self.gather(state);
                if !mine {
                    break;
                }
            }
            let Some((job, committer)) = state.next_job() else { break };
            any = true;
            let (back, flight) = self.launch(state, job, committer, &mut watch);
            state = back;
            let Some(flight) = flight else { break };
            if manual {
                state = self.fly_several(state, flight, &mut watch, &mut wakers);
            } else {
                // What came meanwhile may be another's commit.
                self.kick(&state);
                state = self.fly(state, flight, &mut wakers);
            }
            watch.flights = None;
        }
        self.committer_idle.notify_all();
        self.kick(&state);
        state.wakers.push(wakers);
        drop(state);
        if self.published.is_latched() {
            self.waiters.wake_all();
        }
        if manual && self.maintenance_queued.load(SeqCst) {
            self.maintain();
        }
        any
    }

    /// Stays awake a moment for callers to come back, where that is worth it. `false` if another thread
    /// does, and commits then.
    fn gather<'a>(&'a self, mut state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        if state.core.is_gathering() {
            return (state, false);
        }
        if let Some(wait) = state.core.begin_gathering() {
            self.gathered.store(false, SeqCst);
            drop(state);
            let start = Instant::now();
            while !self.gathered.load(SeqCst) && start.elapsed() < wait {
                std::thread::yield_now();
            }
            state = self.lock();
            state.core.end_gathering();
        }
        (state, true)
    }

    /// Tells the thread that waits for callers when enough are back.
    pub(crate) fn came_back(&self, state: &State) {
        if state.core.has_gathered() {
            self.gathered.store(true, SeqCst);
        }
    }

    /// Makes a job ready; `None` when that failed. The committer is back when this returns, unless it
    /// panics.
    fn launch<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        job: Job,
        mut committer: Box<Committer>,
        watch: &mut Watch<'_>,
    ) -> (MutexGuard<'a, State>, Option<Flight>) {
        let (number, last) = (job.flight(), job.last_seq());
        watch.adds(number);
        let durable = state.core.durable();
        drop(state);
        let prepared = committer.prepare(self, job, durable);
        let mut state = self.lock();
        if committer.is_far_ahead() {
            state.core.ask_sync(number);
        }
        state.committer = Some(committer);
        match prepared {
            Ok(flight) => (state, Some(flight)),
            Err(error) => {
                self.failed(&mut state, number, last, error);
                (state, None)
            }
        }
    }

    /// Does the I/O of a flight, and tells whoever waited for what is durable with it.
    fn fly<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        flight: Flight,
        wakers: &mut Vec<Waker>,
    ) -> MutexGuard<'a, State> {
        let (number, last) = (flight.job().flight(), flight.job().last_seq());
        if state.core.has_failed() {
            // Nothing is written behind a failure but what was on its way already.
            state.core.fail(number);
            self.publish_latch(&state);
            return state;
        }
        drop(state);
        let start = Instant::now();
        let outcome = flight.fly(self);
        let took = start.elapsed();
        // Whoever is told that this is durable may want to use its window again.
        let index = flight.into_index();
        let mut state = self.lock();
        let before = state.core.durable();
        if let Err(error) = outcome {
            self.failed(&mut state, number, last, error);
            return state;
        }
        state.core.return_index(index);
        if !state.core.land(number) {
            return state;
        }
        let mark = state.core.durable();
        self.published.publish(mark.position, mark.seq);
        self.publish_latch(&state);
        let callers = self.waiters.take_callers(mark.seq, wakers);
        state.core.landed_for(callers, took);
        if self.waiters.has_readers() {
            // Whoever wakes thousands of them is no use to the callers meanwhile.
            self.kick(&state);
        }
        drop(state);
        wakers.drain(..).for_each(wake);
        let moved = mark != before;
        let told = if moved { self.page.lock().store(mark) } else { Ok(()) };
        self.waiters.wake_readers(mark.seq, wakers);
        if (moved && self.rotation_pending.load(SeqCst)) || self.runway.is_low() {
            self.want_maintenance();
        }
        let mut state = self.lock();
        if let Err(error) = told {
            self.latch(&mut state, error, mark.seq);
        }
        state
    }

    /// As threads would: everything that may be in flight at once is launched, and then lands, every
    /// other time in the wrong order.
    fn fly_several<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        first: Flight,
        watch: &mut Watch<'_>,
        wakers: &mut Vec<Waker>,
    ) -> MutexGuard<'a, State> {
        let backwards = first.job().flight() % 2 == 1;
        let mut flights = vec![first];
        while let Some((job, committer)) = state.next_job() {
            let (back, flight) = self.launch(state, job, committer, watch);
            state = back;
            match flight {
                Some(flight) => flights.push(flight),
                None => break,
            }
        }
        if backwards {
            flights.reverse();
        }
        for flight in flights {
            state = self.fly(state, flight, wakers);
        }
        state
    }

    fn failed(&self, state: &mut State, flight: u64, last: Option<u64>, error: Error) {
        let through = last.unwrap_or(state.core.written().seq);
        state.core.fail(flight);
        self.latch(state, error, through);
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
        self.publish_latch(state);
    }

    /// Those who wait hear of a failure when nothing that was on its way before it can become durable
    /// any more.
    fn publish_latch(&self, state: &State) {
        if state.core.has_failed() && !state.core.is_open() {
            self.terminal.set(state.core.latch());
            self.published.set_latched();
        }
    }

    /// A failure outside a commit.
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.lock();
        let through = state.core.durable().seq;
        self.latch(&mut state, error, through);
        drop(state);
        self.waiters.wake_all();
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
            let me: Weak<dyn CommitWork> = self.weak_self.clone();
            self.engine.at(at, me);
        }
    }
}

/// How far a thread drives commits.
#[derive(Debug, Clone, Copy)]
enum Until {
    /// Nothing is left to be done.
    Idle,
    /// The next one.
    One,
    /// This unit is durable, or in other hands.
    Durable(u64),
}

impl Until {
    fn wants(self, core: &Core, any: bool) -> bool {
        match self {
            Self::Idle => true,
            Self::One => !any,
            Self::Durable(unit) => core.durable().unit < unit && core.helps(unit),
        }
    }
}

/// Tells everybody when the thread that commits panics: its flights do not land, and the committer
/// may be gone with it.
struct Watch<'a> {
    log: &'a WriteHalf,
    /// Those that this thread launched and that are not over.
    flights: Option<RangeInclusive<u64>>,
}

impl Watch<'_> {
    fn adds(&mut self, flight: u64) {
        let first = self.flights.as_ref().map_or(flight, |flights| *flights.start());
        self.flights = Some(first..=flight);
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(flights) = self.flights.take().filter(|_| std::thread::panicking()) {
            let mut state = self.log.lock();
            flights.for_each(|flight| state.core.fail(flight));
            drop(state);
            self.log.stopped(true);
        }
    }
}

impl CommitWork for WriteHalf {
    fn commit(&self) {
        self.queued.store(false, SeqCst);
        self.reserve_asked();
        self.run_commits(self.lock(), Until::Idle);
    }

    fn maintain(&self) {
        self.maintenance_queued.store(false, SeqCst);
        if let Err(error) = maintain(self) {
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
        self.run_commits(state, Until::Idle);
    }

    fn stopped(&self, panicked: bool) {
        let mut state = self.lock();
        state.core.set_latch(Latch::Stopped);
        self.terminal.set(state.core.latch());
        state.committer_lost |= panicked && state.committer.is_none();
        drop(state);
        self.committer_idle.notify_all();
        self.published.set_latched();
        self.waiters.wake_all();
    }
}
