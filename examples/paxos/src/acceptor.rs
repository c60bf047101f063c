//! An acceptor: a consensus log on a disk of its own, that crashes and comes back.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker::consensus::{Ballot, ConsensusLog, Error, IterateOptions, Mode, Slot, SnapshotBounds};
use esker::disk::sim::{CutPoint, Persist, SimDisk};
use esker::log::Engine;
use esker_testkit::SplitMix64;

use crate::message::{AcceptedEntry, Answer, Request};

/// The most entries in one answer to a fetch.
const FETCHED: usize = 8;

/// One acceptor, or a learner that never votes.
pub struct Acceptor {
    disk: SimDisk,
    mode: Mode,
    /// There while it is up.
    life: Option<Life>,
}

struct Life {
    log: ConsensusLog,
    engine: Engine,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

/// What another thread of the acceptor does while it deals with a request: raises the floor, under
/// a verified snapshot. It strikes after so many entries were listed, so that a seed fixes where.
#[derive(Debug, Clone, Copy)]
pub struct Beside {
    pub after: usize,
    pub raise: Raise,
}

/// How the floor is raised.
#[derive(Debug, Clone, Copy)]
pub enum Raise {
    /// Slots below this one are truncated, as far as they are committed.
    Truncate(Slot),
    /// Slots up to this one are in the snapshot, whether they are here or not.
    Install(Slot),
}

/// What comes of a request, besides silence.
#[derive(Debug)]
pub enum Reaction {
    Answers(Answer),
    /// Requests for another acceptor.
    Passes(Vec<Request>),
    /// The floor passed what had to be listed.
    Refused,
    Nothing,
    /// The contract is broken, as the log itself reports.
    Violation(String),
}

impl Acceptor {
    pub fn new(mode: Mode, seed: u64) -> Self {
        Self { disk: SimDisk::new(seed), mode, life: None }
    }

    pub fn is_up(&self) -> bool {
        self.life.is_some()
    }

    /// Opens the log; a crash that was planned may strike here, too.
    pub fn recover(&mut self) -> Result<(), String> {
        self.disk.power_on();
        let engine = Engine::manual();
        let log = ConsensusLog::builder("/acceptor")
            .disk(Arc::new(self.disk.process()))
            .engine(engine.clone())
            .mode(self.mode)
            .segment_size(64 << 10)
            .cache_size(4 << 10)
            .checkpoint_every(1024);
        match log.open() {
            Ok(log) => self.life = Some(Life { log, engine }),
            Err(error) => {
                engine.stop();
                if self.disk.is_on() {
                    return Err(format!("a log does not open: {error}"));
                }
            }
        }
        Ok(())
    }

    /// The power goes at one of the next operations of the disk.
    pub fn plan_crash(&mut self, rng: &mut SplitMix64) {
        let at = self.disk.operations() + rng.below(12);
        let at = if rng.percent(50) { CutPoint::Before(at) } else { CutPoint::During(at) };
        self.disk.cut_power_at(at, Persist::Random);
    }

    /// The power goes now.
    pub fn crash(&mut self) {
        self.disk.power_cut(Persist::Random);
        self.life = None;
    }

    /// No crash is planned any more.
    pub fn stay_up(&mut self) {
        self.disk.cancel_cut();
    }

    /// The committed entries from a slot onwards that the log still has.
    pub fn committed(&self, from: Slot) -> Vec<AcceptedEntry> {
        let mut all = Vec::new();
        if let Some(life) = &self.life {
            let listed = life.log.iterate(.., IterateOptions::default(), |entry| {
                if entry.slot() >= from {
                    all.push(reported(entry));
                }
                ControlFlow::Continue(())
            });
            drop(listed);
        }
        all
    }

    /// The first slot that is not known to be decided.
    pub fn next(&self) -> Slot {
        let frontier = self.life.as_ref().and_then(|life| life.log.frontier());
        frontier.map_or(Slot::ZERO, Slot::next)
    }

    /// Drops a prefix that a snapshot has.
    pub fn raise(&mut self, how: Raise) -> Reaction {
        self.with(|log| raise(log, how).map(|()| Reaction::Nothing))
    }

    /// Deals with a request; silence while it is down, or when it dies over it.
    pub fn handle(&mut self, request: &Request, beside: Option<Beside>) -> Reaction {
        self.with(|log| handle(log, request, beside))
    }

    fn with(&mut self, act: impl FnOnce(&ConsensusLog) -> Result<Reaction, Error>) -> Reaction {
        let Some(life) = &self.life else { return Reaction::Nothing };
        let reaction = act(&life.log);
        if !self.disk.is_on() {
            self.life = None;
            return Reaction::Nothing;
        }
        match reaction {
            Ok(reaction) => reaction,
            Err(Error::StaleBallot { promised }) => Reaction::Answers(Answer::Stale { promised }),
            Err(Error::Truncated { .. }) => Reaction::Refused,
            // Late, early or unnecessary: silence is always right.
            Err(
                Error::AlreadyCommitted { .. }
                | Error::SlotNotFound { .. }
                | Error::BallotMismatch { .. },
            ) => Reaction::Nothing,
            Err(error) => Reaction::Violation(format!("an acceptor says: {error}")),
        }
    }
}

fn reported(entry: &esker::consensus::Entry<'_>) -> AcceptedEntry {
    AcceptedEntry {
        slot: entry.slot(),
        ballot: entry.ballot(),
        value: entry.value().to_vec(),
        committed: entry.is_committed(),
    }
}

fn raise(log: &ConsensusLog, how: Raise) -> Result<(), Error> {
    match how {
        Raise::Truncate(slot) => {
            let next = log.frontier().map_or(Slot::ZERO, Slot::next);
            log.truncate_before(slot.min(next))
        }
        Raise::Install(floor) => log.install(SnapshotBounds { floor, frontier: floor }),
    }
}

/// Raises the floor when so many entries were listed.
fn strike(log: &ConsensusLog, listed: usize, beside: Option<Beside>) -> Result<(), Error> {
    match beside {
        Some(beside) if beside.after == listed => raise(log, beside.raise),
        _ => Ok(()),
    }
}

fn handle(
    log: &ConsensusLog,
    request: &Request,
    beside: Option<Beside>,
) -> Result<Reaction, Error> {
    match request {
        Request::Prepare { ballot, from } => {
            // Only what is durable is answered.
            let promised = log.promise(*ballot, *from)?.blocking_wait()?;
            let mut entries = Vec::new();
            let mut raised = strike(log, 0, beside);
            // A refused list is not sent.
            let _ = promised.for_each(|entry| {
                entries.push(reported(entry));
                raised = raised.clone().and_then(|()| strike(log, entries.len(), beside));
                ControlFlow::Continue(())
            })?;
            raised?;
            let (ballot, floor) = (promised.ballot(), promised.floor());
            Ok(Reaction::Answers(Answer::Promise { ballot, floor, entries }))
        }
        Request::Accept { ballot, slot, value } => {
            log.accept(*slot, *ballot, value)?.blocking_wait()?;
            Ok(Reaction::Answers(Answer::Accepted { ballot: *ballot, slot: *slot }))
        }
        Request::Commit { ballot, slot } => {
            log.commit(*slot, *ballot)?.blocking_wait()?;
            Ok(Reaction::Nothing)
        }
        Request::Learn { ballot, slot, value } => match log.learn(*slot, *ballot, value) {
            Ok(ticket) => ticket.blocking_wait().map(|()| Reaction::Nothing),
            Err(Error::AlreadyCommitted { entry }) => {
                let slot = entry.slot();
                Ok(Reaction::Violation(format!("slot {slot} was chosen with two values")))
            }
            Err(error) => Err(error),
        },
        Request::Install { floor } => {
            log.install(SnapshotBounds { floor: *floor, frontier: *floor })?;
            Ok(Reaction::Nothing)
        }
        Request::Fetch { from, .. } => {
            let mut passes = Vec::new();
            let mut first = *from;
            if let Some(floor) = log.floor().filter(|floor| floor >= from) {
                passes.push(Request::Install { floor });
                first = floor.next();
            }
            let mut raised = strike(log, 0, beside);
            let _ = log.replay_from(first, |entry| {
                raised = raised.clone().and_then(|()| strike(log, passes.len() + 1, beside));
                passes.push(Request::Learn {
                    ballot: entry.ballot(),
                    slot: entry.slot(),
                    value: entry.value().to_vec(),
                });
                if passes.len() < FETCHED {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
            raised?;
            Ok(Reaction::Passes(passes))
        }
    }
}

/// A ballot that is above another, for a node.
pub fn above(ballot: Ballot, node: u64) -> Ballot {
    Ballot { number: ballot.number + 1, node }
}
