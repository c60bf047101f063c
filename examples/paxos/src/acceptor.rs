//! An acceptor: a consensus log for each group, on one disk, that crashes and comes back.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use esker::consensus::{
    Ballot, ConsensusLog, Error, IterateOptions, LearnError, LogManager, Mode, Slot, SnapshotBounds,
};
use esker::disk::sim::{CutPoint, Persist, SimDisk};
use esker::log::Engine;
use esker_testkit::SplitMix64;

use crate::message::{AcceptedEntry, Answer, Request};

/// The most entries in one answer to a fetch.
const FETCH_ENTRIES_MAX: usize = 8;

/// The logs that an acceptor keeps open. With more groups than these, one is closed to make room.
const MAX_OPEN: usize = 2;

/// An acceptor of all groups, or a learner that never votes.
pub struct Acceptor {
    disk: SimDisk,
    mode: Mode,
    /// The logs, while the acceptor is up.
    life: Option<Life>,
    pub crashes: u64,
    /// Openings of logs that were closed to make room.
    pub openings: u64,
}

struct Life {
    manager: LogManager,
    engine: Engine,
    /// The groups whose logs were opened.
    opened: BTreeSet<usize>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

/// Another thread of the acceptor, which raises the floor, under a verified snapshot, during a
/// request. It strikes after a number of listed entries, so that a seed fixes where.
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

/// The reaction to a request, besides silence.
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
        Self { disk: SimDisk::new(seed), mode, life: None, crashes: 0, openings: 0 }
    }

    pub fn is_up(&self) -> bool {
        self.life.is_some()
    }

    /// Opens the manager of the logs; a crash that was planned may strike here, too.
    pub fn recover(&mut self) -> Result<(), String> {
        self.disk.power_on();
        let engine = Engine::manual();
        let logs = LogManager::builder("/acceptor").max_open(MAX_OPEN);
        let mut each = logs.current_options().clone();
        each.log.disk = Arc::new(self.disk.process());
        each.log.engine = Some(engine.clone());
        each.mode = self.mode;
        each.log.segment_size = 64 << 10;
        each.cache_size = 4 << 10;
        each.checkpoint_every = 1024;
        match logs.options(each).open() {
            Ok(manager) => self.life = Some(Life { manager, engine, opened: BTreeSet::new() }),
            Err(error) => {
                engine.stop();
                if self.disk.is_on() {
                    return Err(format!("an acceptor does not open: {error}"));
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
        self.die();
    }

    fn die(&mut self) {
        self.life = None;
        self.crashes += 1;
    }

    /// Cancels the planned crash.
    pub fn stay_up(&mut self) {
        self.disk.cancel_cut();
    }

    /// The committed entries of a group, from a slot onwards, that its log still has.
    pub fn committed(&mut self, group: usize, from: Slot) -> Vec<AcceptedEntry> {
        let listed = self.with(group, |log| {
            let mut all = Vec::new();
            log.iterate(.., IterateOptions::default(), |entry| {
                if entry.slot() >= from {
                    all.push(reported(entry));
                }
                ControlFlow::Continue(())
            })?;
            Ok(all)
        });
        listed.and_then(Result::ok).unwrap_or_default()
    }

    /// The first slot of a group that is not known to be decided.
    pub fn next(&mut self, group: usize) -> Slot {
        let frontier = self.with(group, |log| Ok(log.frontier()));
        frontier.and_then(Result::ok).flatten().map_or(Slot::ZERO, Slot::next)
    }

    /// Drops a prefix that a snapshot has.
    pub fn raise(&mut self, group: usize, how: Raise) -> Reaction {
        self.react(group, |log| raise(log, how).map(|()| Reaction::Nothing))
    }

    /// Deals with a request; silence while it is down, or when it dies over it.
    pub fn handle(&mut self, group: usize, request: &Request, beside: Option<Beside>) -> Reaction {
        self.react(group, |log| handle(log, request, beside))
    }

    /// Uses the log of a group. The manager opens it, and may close another; its guard is released
    /// before the answer is sent. `None` while it is down, or when it dies over it.
    fn with<T>(
        &mut self,
        group: usize,
        act: impl FnOnce(&ConsensusLog) -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        let Life { manager, opened, .. } = self.life.as_mut()?;
        let key = format!("group/{group}");
        let is_open = manager.get_if_open(&key).is_some();
        let done = manager.get(&key).map_err(Error::from).and_then(|log| {
            let again = !opened.insert(group);
            self.openings += u64::from(again && !is_open);
            act(&log)
        });
        if !self.disk.is_on() {
            self.die();
            return None;
        }
        Some(done)
    }

    fn react(
        &mut self,
        group: usize,
        act: impl FnOnce(&ConsensusLog) -> Result<Reaction, Error>,
    ) -> Reaction {
        match self.with(group, act) {
            None => Reaction::Nothing,
            Some(Ok(reaction)) => reaction,
            Some(Err(Error::StaleBallot { promised })) => {
                Reaction::Answers(Answer::Stale { promised })
            }
            Some(Err(Error::Truncated { .. })) => Reaction::Refused,
            // Late, early or unnecessary: silence is always right.
            Some(Err(
                Error::AlreadyCommitted { .. }
                | Error::SlotNotFound { .. }
                | Error::BallotMismatch { .. },
            )) => Reaction::Nothing,
            Some(Err(error)) => Reaction::Violation(format!("an acceptor says: {error}")),
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
    let ticket = match how {
        Raise::Truncate(slot) => {
            let next = log.frontier().map_or(Slot::ZERO, Slot::next);
            log.truncate_before(slot.min(next))
        }
        Raise::Install(floor) => log.snapshots().install(SnapshotBounds { floor, frontier: floor }),
    };
    Ok(ticket?.blocking_wait()?)
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
            Ok(ticket) => {
                ticket.blocking_wait()?;
                Ok(Reaction::Nothing)
            }
            Err(LearnError::AlreadyCommitted { entry }) => {
                let slot = entry.slot();
                Ok(Reaction::Violation(format!("slot {slot} was chosen with two values")))
            }
            Err(error) => Err(error.into()),
        },
        Request::Install { floor } => {
            raise(log, Raise::Install(*floor))?;
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
            let _ = log.iterate(first.., IterateOptions::default(), |entry| {
                raised = raised.clone().and_then(|()| strike(log, passes.len() + 1, beside));
                passes.push(Request::Learn {
                    ballot: entry.ballot(),
                    slot: entry.slot(),
                    value: entry.value().to_vec(),
                });
                if passes.len() < FETCH_ENTRIES_MAX {
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
