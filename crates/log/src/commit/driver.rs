//! Driving commits: on the thread of a caller that waits, or of the engine.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use crate::base::error::{Error, Result, Terminal};
use crate::base::options::Policy;
use crate::commit::commit_io::CommitIo;
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
                Some(Err(Error::Io((**cause).clone())))
            }
            Some(terminal @ (Terminal::Failed { .. } | Terminal::Stopped)) => {
                Some(Err(terminal.refusal()))
            }
            Some(Terminal::Closed) | None => None,
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
        if state.core.is_delaying() {
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
        let mut guard = PanicGuard { log: self, in_flight: None };
        let mut any = false;
        // Without an engine's threads, whoever drives does all that was asked for.
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
                // What came meanwhile may be another's commit.
                self.kick(&state);
                state = self.execute(state, io, &mut wakers);
            }
            guard.in_flight = None;
        }
        self.committer_idle.notify_all();
        self.kick(&state);
        state.wakers.push(wakers);
        drop(state);
        if self.watermark.is_terminal() {
            self.waiters.wake_all();
        }
        if manual && self.maintenance_queued.load(SeqCst) {
            self.maintain();
        }
        any
    }

    /// Stays awake a moment for callers to come back, where that is worth it. `false` if another thread
    /// does, and commits then.
    fn delay_commit<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> (MutexGuard<'a, State>, bool) {
        if state.core.is_delaying() {
            return (state, false);
        }
        if let Some(wait) = state.core.begin_delay() {
            self.delay_met.store(false, SeqCst);
            drop(state);
            let start = Instant::now();
            while !self.delay_met.load(SeqCst) && start.elapsed() < wait {
                std::thread::yield_now();
            }
            state = self.lock();
            state.core.end_delay();
        }
        (state, true)
    }

    /// Tells the thread that waits for callers when enough are back.
    pub(crate) fn notify_delay(&self, state: &State) {
        if state.core.delay_is_met() {
            self.delay_met.store(true, SeqCst);
        }
    }

    /// Makes a job ready; `None` when that failed. The committer is back when this returns, unless it
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
            state.core.ask_sync(number);
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

    /// Does the I/O of a flight, and tells whoever waited for what is durable with it.
    fn execute<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        io: CommitIo,
        wakers: &mut Vec<Waker>,
    ) -> MutexGuard<'a, State> {
        let (number, last) = (io.job().unit(), io.job().last_seq());
        if state.core.has_failed() {
            // Nothing is written behind a failure but what was on its way already.
            state.core.fail(number);
            self.publish_terminal(&state);
            return state;
        }
        drop(state);
        let start = Instant::now();
        let outcome = io.execute(self);
        let took = start.elapsed();
        // Whoever is told that this is durable may want to use its window again.
        let index = io.into_index();
        let mut state = self.lock();
        let before = state.core.durable();
        if let Err(error) = outcome {
            self.failed(&mut state, number, last, error);
            return state;
        }
        state.core.return_index(index);
        if !state.core.complete(number) {
            return state;
        }
        let mark = state.core.durable();
        self.watermark.publish(mark.position, mark.seq);
        self.publish_terminal(&state);
        let callers = self.waiters.take_callers(mark.seq, wakers);
        state.core.commit_completed(callers, took);
        if self.waiters.has_readers() {
            // Whoever wakes thousands of them is no use to the callers meanwhile.
            self.kick(&state);
        }
        drop(state);
        wakers.drain(..).for_each(wake);
        let moved = mark != before;
        let told = if moved { self.watermark_page.lock().store(mark) } else { Ok(()) };
        self.waiters.wake_readers(mark.seq, wakers);
        if (moved && self.rotation_pending.load(SeqCst)) || self.preallocator.is_low() {
            self.want_maintenance();
        }
        let mut state = self.lock();
        if let Err(error) = told {
            self.terminal(&mut state, error, mark.seq);
        }
        state
    }

    /// As threads would: everything that may be in flight at once is launched, and then lands, every
    /// other time in the wrong order.
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
        for io in in_flight {
            state = self.execute(state, io, wakers);
        }
        state
    }

    fn failed(&self, state: &mut State, io: u64, last: Option<u64>, error: Error) {
        let through = last.unwrap_or(state.core.written().seq);
        state.core.fail(io);
        self.terminal(state, error, through);
    }

    /// Takes no more records from here on, for this reason. Whoever holds the state wakes everybody
    /// after letting go of it.
    fn terminal(&self, state: &mut State, error: Error, through: u64) {
        let terminal = match error {
            Error::Io(cause) => Terminal::Failed { cause: Arc::new(cause), through },
            error => {
                tracing::error!(%error, "the commit failed");
                Terminal::Stopped
            }
        };
        state.core.set_terminal(terminal);
        self.publish_terminal(state);
    }

    /// Those who wait hear of a failure when nothing that was on its way before it can become durable
    /// any more.
    fn publish_terminal(&self, state: &State) {
        if state.core.has_failed() && !state.core.is_open() {
            self.terminal.set(state.core.terminal());
            self.watermark.set_terminal();
        }
    }

    /// A failure outside a commit.
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.lock();
        let through = state.core.durable().seq;
        self.terminal(&mut state, error, through);
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
struct PanicGuard<'a> {
    log: &'a WriteHalf,
    /// Those that this thread launched and that are not over.
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
        state.core.set_terminal(Terminal::Stopped);
        self.terminal.set(state.core.terminal());
        state.committer_lost |= panicked && state.committer.is_none();
        drop(state);
        self.committer_idle.notify_all();
        self.watermark.set_terminal();
        self.waiters.wake_all();
    }
}
