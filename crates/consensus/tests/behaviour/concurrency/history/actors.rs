//! The threads of a life.

use std::ops::ControlFlow;

use esker_consensus::{
    Ballot, Error, IterateOptions, PromiseAnswer, PromiseError, ReadError, Slot, SnapshotBounds,
    Ticket, TruncateError,
};
use esker_testkit::SplitMix64;

use super::{Answer, CallOutcome, End, Event, Life, Operation, value};

/// Slots above the frontier that are accepted out of order.
const AHEAD: u64 = 24;

/// One thread: its events, and its source of chance.
pub struct Actor<'a> {
    life: &'a Life<'a>,
    rng: SplitMix64,
    node: u64,
    events: Vec<Event>,
}

impl<'a> Actor<'a> {
    pub fn new(life: &'a Life<'a>, seed: u64, node: u64) -> Self {
        let rng = SplitMix64::new(seed ^ node << 40);
        Self { life, rng, node, events: Vec::new() }
    }

    pub fn into_events(self) -> Vec<Event> {
        self.events
    }

    fn record(&mut self, call: u64, ret: u64, what: Operation) {
        self.events.push(Event { call, ret, what });
    }

    /// Accepts, commits and learns.
    pub fn write(&mut self, steps: u64) {
        for _ in 0..steps {
            if !self.life.disk.is_on() {
                return;
            }
            let next = self.life.log.frontier().map_or(0, |frontier| frontier.0 + 1);
            let slot = (next + self.rng.below(AHEAD)).saturating_sub(self.rng.below(6));
            let slot = if self.rng.percent(40) { next } else { slot };
            let ballot = self.ballot();
            if self.rng.percent(10) {
                self.learn(slot, ballot);
                continue;
            }
            self.accept(slot, ballot);
            if self.rng.percent(85) {
                self.commit(slot, ballot);
            }
        }
    }

    /// Mostly the ballot that is promised: a thread of its proposer.
    fn ballot(&mut self) -> Ballot {
        let promised = self.life.log.promised().unwrap_or(Ballot::ZERO);
        match self.rng.below(20) {
            0 => Ballot { number: promised.number + 1, node: self.node },
            1 => Ballot { number: promised.number.saturating_sub(1).max(1), node: promised.node },
            _ => promised.max(Ballot { number: 1, node: 1 }),
        }
    }

    /// The outcome of a call that returns a ticket; waits for it or drops it.
    fn done(&mut self, what: &str, reported: Result<Ticket, impl Into<Error>>) -> CallOutcome {
        match reported.map_err(Into::into) {
            Ok(ticket) if self.rng.percent(25) => {
                drop(ticket);
                CallOutcome::Ordered
            }
            Ok(ticket) => match ticket.blocking_wait() {
                Ok(()) => CallOutcome::Durable(self.life.tick()),
                Err(error) => {
                    self.life.unexplained(what, &error);
                    CallOutcome::Ordered
                }
            },
            Err(
                Error::StaleBallot { .. }
                | Error::AlreadyCommitted { .. }
                | Error::Truncated { .. }
                | Error::SlotNotFound { .. }
                | Error::BallotMismatch { .. },
            ) => CallOutcome::Refused,
            Err(error) => {
                self.life.unexplained(what, &error);
                CallOutcome::Unknown
            }
        }
    }

    fn accept(&mut self, slot: u64, ballot: Ballot) {
        let call = self.life.tick();
        let reported = self.life.log.accept(Slot(slot), ballot, &value(slot, ballot));
        let ret = self.life.tick();
        let done = self.done("accept", reported);
        self.record(call, ret, Operation::Accept { slot, ballot, done });
    }

    fn commit(&mut self, slot: u64, ballot: Ballot) {
        let call = self.life.tick();
        let reported = self.life.log.commit(Slot(slot), ballot);
        let ret = self.life.tick();
        let done = self.done("commit", reported);
        self.record(call, ret, Operation::Commit { slot, ballot, done });
    }

    fn learn(&mut self, slot: u64, ballot: Ballot) {
        let call = self.life.tick();
        let reported = self.life.log.learn(Slot(slot), ballot, &value(slot, ballot));
        let ret = self.life.tick();
        let done = self.done("learn", reported);
        self.record(call, ret, Operation::Learn { slot, ballot, done });
    }

    /// Promises, and reads the answers slowly.
    pub fn promise(&mut self, most: u64) {
        for _ in 0..most {
            if self.life.is_over() {
                return;
            }
            let ballot = Ballot {
                number: self.life.log.promised().map_or(1, |promised| promised.number + 1),
                node: self.node,
            };
            let floor = self.life.log.floor().map_or(0, u64::from);
            let from = if self.rng.percent(30) { 0 } else { floor + self.rng.below(12) };
            let call = self.life.tick();
            let reported = self.life.log.promise(ballot, Slot(from));
            let ret = self.life.tick();
            let (done, promised) = match reported.map(esker_consensus::PromiseTicket::blocking_wait)
            {
                Ok(Ok(promised)) => (CallOutcome::Durable(self.life.tick()), Some(promised)),
                Ok(Err(error)) => {
                    self.life.unexplained("promise", &error);
                    (CallOutcome::Ordered, None)
                }
                Err(PromiseError::StaleBallot { .. }) => (CallOutcome::Refused, None),
                Err(error) => {
                    self.life.unexplained("promise", &error);
                    (CallOutcome::Unknown, None)
                }
            };
            let answer = promised.map(|promised| self.answer(&promised));
            self.record(call, ret, Operation::Promise { ballot, from, done, answer });
            std::thread::yield_now();
        }
    }

    fn answer(&mut self, promised: &PromiseAnswer) -> Answer {
        let (life, mut seen) = (self.life, Vec::new());
        let stop = if self.rng.percent(20) { self.rng.below(30) } else { u64::MAX };
        let slow = self.rng.below(8);
        let reported = promised.for_each(|entry| {
            life.whole(entry);
            seen.push((entry.slot().0, entry.ballot(), entry.is_committed()));
            if (seen.len() as u64).is_multiple_of(slow + 1) {
                std::thread::yield_now();
            }
            if seen.len() as u64 > stop {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let end = self.end("an answer", reported.map(|flow| flow.is_break()));
        Answer { floor: promised.floor().map(u64::from), seen, end, returned: self.life.tick() }
    }

    fn end(&self, what: &str, reported: Result<bool, ReadError>) -> End {
        match reported {
            Ok(true) => End::Stopped,
            Ok(false) => End::Whole,
            Err(ReadError::Truncated { floor }) => End::Truncated(floor.0),
            Err(error) => {
                self.life.unexplained(what, &error);
                End::Off
            }
        }
    }

    /// Truncates, installs and makes checkpoints.
    pub fn raise(&mut self, most: u64) {
        for _ in 0..most {
            if self.life.is_over() {
                return;
            }
            let call = self.life.tick();
            let next = self.life.log.frontier().map_or(0, |frontier| frontier.0 + 1);
            self.record(call, self.life.tick(), Operation::Frontier { next });
            let (ahead, back) = (self.rng.below(4), self.rng.below(20));
            match self.rng.below(10) {
                0 => self.checkpoint(),
                1 | 2 => self.install(next + ahead),
                _ => self.truncate(next.saturating_sub(back)),
            }
            let pause = std::time::Duration::from_micros(self.rng.below(400));
            std::thread::sleep(pause);
        }
    }

    fn checkpoint(&self) {
        if let Err(error) = self.life.log.maintenance().checkpoint() {
            self.life.unexplained("checkpoint", &error);
        }
    }

    fn truncate(&mut self, start: u64) {
        let call = self.life.tick();
        let truncated = self.life.log.truncate_before(Slot(start));
        let reported = truncated.and_then(|ticket| Ok(ticket.blocking_wait()?));
        self.raised(call, start, start, reported);
    }

    fn install(&mut self, floor: u64) {
        let frontier = floor + self.rng.below(3);
        let call = self.life.tick();
        let bounds = SnapshotBounds { floor: Slot(floor), frontier: Slot(frontier) };
        let installed = self.life.log.snapshots().install(bounds);
        let reported = installed.and_then(|ticket| Ok(ticket.blocking_wait()?));
        self.raised(call, floor + 1, frontier + 1, reported);
    }

    fn raised(&mut self, call: u64, start: u64, next: u64, reported: Result<(), TruncateError>) {
        let ret = self.life.tick();
        let done = match reported {
            Ok(()) => CallOutcome::Durable(ret),
            Err(error) => {
                self.life.unexplained("raising the floor", &error);
                CallOutcome::Unknown
            }
        };
        self.record(call, ret, Operation::Raise { start, next, done });
    }

    /// Reads, iterates and scans.
    pub fn read(&mut self, most: u64) {
        for _ in 0..most {
            if self.life.is_over() {
                return;
            }
            match self.rng.below(4) {
                0 => self.iterate(None),
                1 => {
                    let from = self.life.log.floor().map_or(0, u64::from) + self.rng.below(8);
                    self.iterate(Some(from));
                }
                2 => self.scan(),
                _ => self.read_some(),
            }
            std::thread::yield_now();
        }
    }

    fn iterate(&mut self, from: Option<u64>) {
        let (life, mut seen) = (self.life, Vec::new());
        let stop = if self.rng.percent(20) { self.rng.below(30) } else { u64::MAX };
        let visit = |entry: &esker_consensus::Entry<'_>| {
            life.whole(entry);
            seen.push((entry.slot().0, entry.ballot()));
            std::thread::yield_now();
            if seen.len() as u64 > stop {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let call = life.tick();
        let reported = match from {
            Some(from) => life.log.iterate(Slot(from).., IterateOptions::default(), visit),
            None => life.log.iterate(.., IterateOptions::default(), visit),
        };
        let ret = life.tick();
        let end = self.end("an iteration", reported.map(|done| done.stopped));
        self.record(call, ret, Operation::Iterate { from, seen, end });
    }

    fn scan(&mut self) {
        let (life, guard) = (self.life, self.life.log.pin());
        let call = life.tick();
        let reported = life.log.maintenance().scan_uncommitted(&guard);
        let ret = life.tick();
        match reported {
            Ok(entries) => {
                entries.iter().for_each(|entry| life.whole(entry));
                let seen = entries.iter().map(|entry| (entry.slot().0, entry.ballot())).collect();
                self.record(call, ret, Operation::Scan { seen });
            }
            Err(error) => life.unexplained("a scan", &error),
        }
    }

    fn read_some(&mut self) {
        let (life, guard) = (self.life, self.life.log.pin());
        let floor = life.log.floor().map_or(0, u64::from);
        for _ in 0..8 {
            let slot = (floor + self.rng.below(40)).saturating_sub(4);
            let call = life.tick();
            let reported = life.log.read_committed(Slot(slot), &guard);
            let ret = life.tick();
            let found = match reported {
                Ok(entry) => {
                    life.whole(&entry);
                    Ok(Some(entry.ballot()))
                }
                Err(ReadError::SlotNotFound { .. } | ReadError::NotCommitted { .. }) => Ok(None),
                Err(ReadError::Truncated { floor }) => Err(End::Truncated(floor.0)),
                Err(error) => {
                    life.unexplained("a read", &error);
                    Err(End::Off)
                }
            };
            self.record(call, ret, Operation::Read { slot, found });
        }
    }
}
