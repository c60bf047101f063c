//! What the crash suite stands on: random programs over a consensus log on the simulated disk, a model
//! of what must be there, and a power that goes anywhere.
//!
//! One sentence is checked, slot by slot: **acknowledged ⊆ recovered ⊆ attempted**. A promise that was
//! acknowledged is there, and so is an accept or a higher one of the same slot; a commit that was
//! acknowledged is there with its value; nothing is there that nobody tried; and a slot that was ever
//! seen committed never changes.
//!
//! Everything runs on the test's thread with a manual engine: a case is fixed by its seed and the
//! place where the power goes.
#![allow(dead_code)] // Each test binary uses its own part.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use esker_consensus::{Ballot, ConsensusLog, Error, Mode, Options};
use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::Engine;

pub const DIR: &str = "/consensus";

/// SplitMix64, the suite's one source of chance.
#[derive(Debug, Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Promise { ballot: Ballot },
    Accept { slot: u64, ballot: Ballot, len: usize },
    AcceptBatch { slot: u64, count: u64, ballot: Ballot },
    Commit { slot: u64, right: bool },
    CommitBatch { slot: u64, count: u64 },
    CommitThrough { slot: u64 },
    Learn { slot: u64, ballot: Ballot },
    TruncateBefore { back: u64 },
    TruncateAfter { slot: u64 },
    Install { ahead: u64 },
    Checkpoint,
    Reopen,
    Look,
}

/// Slots that programs use, above the floor.
pub const SLOTS: u64 = 24;

/// A random program.
pub fn program(len: usize, dice: &mut Dice) -> Vec<Step> {
    (0..len).map(|_| step(dice)).collect()
}

pub fn step(dice: &mut Dice) -> Step {
    let slot = dice.below(SLOTS);
    // Rising now and then, so that most of them are not stale.
    let ballot = Ballot::new(1 + dice.below(4) * dice.below(3), dice.below(2));
    match dice.below(40) {
        0..3 => Step::Promise { ballot },
        3..14 => Step::Accept { slot, ballot, len: (dice.below(8) * dice.below(9) * 60) as usize },
        14..16 => Step::AcceptBatch { slot, count: 1 + dice.below(4), ballot },
        16..24 => Step::Commit { slot, right: dice.below(8) > 0 },
        24..26 => Step::CommitBatch { slot, count: 1 + dice.below(6) },
        26..28 => Step::CommitThrough { slot },
        28..30 => Step::Learn { slot, ballot },
        30..33 => Step::TruncateBefore { back: dice.below(4) },
        33 => Step::TruncateAfter { slot },
        34 => Step::Install { ahead: dice.below(5) },
        35..37 => Step::Checkpoint,
        37 => Step::Reopen,
        _ => Step::Look,
    }
}

/// What is known of a slot.
#[derive(Debug, Clone, Default)]
pub struct Slot {
    /// Everything ever tried under a ballot; for learned values, too.
    attempted: Vec<(Ballot, Vec<u8>)>,
    /// What the log says is accepted now.
    accepted: Option<(Ballot, Vec<u8>)>,
    /// The highest accept that was acknowledged in a mode that means it.
    acknowledged: Option<Ballot>,
    /// Committed, as far as the log was told; durable if acknowledged or found after a crash.
    committed: Option<Vec<u8>>,
    commit_acknowledged: bool,
}

/// What must be there.
#[derive(Debug, Clone, Default)]
pub struct Model {
    slots: BTreeMap<u64, Slot>,
    promise: Ballot,
    promise_acknowledged: Ballot,
    /// The first slot kept: acknowledged, and perhaps.
    start: u64,
    starting: u64,
    /// Slots below are decided: acknowledged, and perhaps.
    decided: u64,
    deciding: u64,
    /// Accepts above this slot may be dropped.
    cutting: Option<u64>,
}

/// Why a life did not go on.
#[derive(Debug)]
pub enum Stop {
    /// The power is off.
    Ended,
    /// An error while the power was on, or a broken promise.
    Broken(String),
}

pub type Lived<T = ()> = Result<T, Stop>;

macro_rules! broken {
    ($($told:tt)*) => { return Err(Stop::Broken(format!($($told)*))) };
}

macro_rules! ensure {
    ($holds:expr, $($told:tt)*) => { if !$holds { broken!($($told)*) } };
}

/// A disk, a log on it now and then, and what must be in it.
pub struct World {
    pub disk: SimDisk,
    pub mode: Mode,
    pub small: bool,
    pub model: Model,
    nonce: u64,
}

pub struct Life {
    pub log: ConsensusLog,
    engine: Engine,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

impl World {
    pub fn new(mode: Mode, small: bool, seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        Self { disk, mode, small, model: Model::default(), nonce: seed << 20 }
    }

    fn value(&mut self, len: usize) -> Vec<u8> {
        self.nonce += 1;
        let mut dice = Dice(self.nonce);
        let mut value = self.nonce.to_le_bytes().to_vec();
        value.extend((0..len).map(|_| dice.next() as u8));
        value
    }

    fn stop<T>(&self, error: &Error, what: &str) -> Lived<T> {
        if self.disk.is_on() {
            Err(Stop::Broken(format!("{what}: {error:?}")))
        } else {
            Err(Stop::Ended)
        }
    }

    pub fn open(&mut self) -> Lived<Life> {
        let engine = Engine::manual();
        let mut options = Options::on(Arc::new(self.disk.process()));
        options.mode = self.mode;
        options.segment_size = 64 << 10;
        options.engine = Some(engine.clone());
        options.checkpoint_every = 1024;
        if self.small {
            options.cache_size = 4096;
        }
        match ConsensusLog::open(DIR, options) {
            Ok(log) => {
                let life = Life { log, engine };
                self.recovered(&life)?;
                Ok(life)
            }
            Err(error) => {
                engine.stop();
                self.stop(&error, "opening")
            }
        }
    }

    /// Opens, and goes through the steps until the power goes.
    pub fn live(&mut self, steps: &[Step]) -> Lived<Life> {
        let mut life = self.open()?;
        for (n, step) in steps.iter().enumerate() {
            let told = self.step(&mut life, step);
            if !self.disk.is_on() {
                return Err(Stop::Ended);
            }
            told.map_err(|stop| match stop {
                Stop::Broken(what) => Stop::Broken(format!("step {n} {step:?}: {what}")),
                Stop::Ended => Stop::Ended,
            })?;
        }
        Ok(life)
    }

    /// A life that ends at a place, or behind its last step.
    pub fn live_and_die(
        &mut self,
        steps: &[Step],
        at: CutPoint,
        how: Persist,
    ) -> Result<(), String> {
        self.disk.cut_power_at(at, how);
        let lived = self.live(steps);
        self.disk.cancel_cut();
        match lived {
            Ok(life) => {
                self.disk.power_cut(how);
                drop(life);
            }
            Err(Stop::Ended) => {}
            Err(Stop::Broken(what)) => return Err(what),
        }
        self.disk.power_on();
        Ok(())
    }

    /// The last life: goes through the steps, closes, and finds everything again.
    pub fn live_and_close(&mut self, steps: &[Step]) -> Result<(), String> {
        let told = |stop: Stop| format!("{stop:?}");
        let mut life = self.live(steps).map_err(told)?;
        for step in [Step::Look, Step::Reopen, Step::Look] {
            self.step(&mut life, &step).map_err(told)?;
        }
        Ok(())
    }

    // ---- after a crash -------------------------------------------------------------------------

    /// Holds what an opening found against what must be there, and learns what it was.
    fn recovered(&mut self, life: &Life) -> Lived {
        let durable_accepts = self.mode == Mode::Durable;
        let guard = life.log.pin();
        let model = &mut self.model;
        let start = life.log.floor().map_or(0, |floor| floor + 1);
        ensure!(
            (model.start..=model.starting).contains(&start),
            "the first slot is {start}, and may be {} to {}",
            model.start,
            model.starting
        );
        let promised = life.log.promised();
        ensure!(
            (model.promise_acknowledged..=model.promise).contains(&promised),
            "{promised} is promised, and was {} acknowledged, {} attempted",
            model.promise_acknowledged,
            model.promise
        );
        let next = life.log.frontier().map_or(0, |frontier| frontier + 1);
        let (least, most) = (model.decided, model.deciding);
        model.start = start;
        model.starting = start;
        model.slots = model.slots.split_off(&start);
        let cut = model.cutting.take();
        for (n, slot) in &mut model.slots {
            let found = match life.log.read(*n, &guard) {
                Ok(entry) => Some((entry.ballot(), entry.value().to_vec(), entry.is_committed())),
                Err(Error::SlotNotFound { .. }) => None,
                Err(error) if !self.disk.is_on() => {
                    drop(error);
                    return Err(Stop::Ended);
                }
                Err(error) => broken!("slot {n} cannot be read: {error:?}"),
            };
            if let Some((ballot, value, committed)) = &found {
                ensure!(
                    slot.attempted.iter().any(|(_, v)| v == value),
                    "slot {n} holds what nobody tried, under {ballot}"
                );
                if let Some(chosen) = &slot.committed {
                    ensure!(
                        chosen == value || !slot.commit_acknowledged && !committed,
                        "slot {n} was committed, and holds another value"
                    );
                }
            }
            let committed = found.as_ref().is_some_and(|(.., committed)| *committed);
            ensure!(committed || !slot.commit_acknowledged, "slot {n} is not committed any more");
            let may_be_cut = cut.is_some_and(|above| *n > above);
            if let Some(ballot) = slot.acknowledged.filter(|_| durable_accepts && !may_be_cut) {
                let kept = found.as_ref().is_some_and(|(found, ..)| *found >= ballot || committed);
                ensure!(kept, "slot {n} was accepted under {ballot}, and holds {found:?}");
            }
            slot.accepted = found.as_ref().map(|(ballot, value, _)| (*ballot, value.clone()));
            slot.acknowledged = found.as_ref().map(|(ballot, ..)| *ballot);
            slot.committed = found.filter(|(.., committed)| *committed).map(|(_, value, _)| value);
            slot.commit_acknowledged = slot.committed.is_some();
        }
        model.promise = promised;
        model.promise_acknowledged = promised;
        let expected = |from: u64| model.run_from(from.max(start));
        ensure!(
            (expected(least)..=expected(most)).contains(&next),
            "slots below {next} are decided, and should be below {} to {}",
            expected(least),
            expected(most)
        );
        model.decided = next;
        model.deciding = next;
        drop(guard);
        self.look(life)
    }

    // ---- steps ---------------------------------------------------------------------------------

    fn step(&mut self, life: &mut Life, step: &Step) -> Lived {
        match step.clone() {
            Step::Promise { ballot } => self.promise(life, ballot),
            Step::Accept { slot, ballot, len } => {
                let value = self.value(len);
                self.accept(life, self.model.start + slot, ballot, value)
            }
            Step::AcceptBatch { slot, count, ballot } => {
                for n in 0..count {
                    let value = self.value(n as usize);
                    self.accept(life, self.model.start + slot + n, ballot, value)?;
                }
                Ok(())
            }
            Step::Commit { slot, right } => self.commit(life, self.model.start + slot, right),
            Step::CommitBatch { slot, count } => self.commit_batch(life, slot, count),
            Step::CommitThrough { slot } => self.commit_through(life, self.model.start + slot),
            Step::Learn { slot, ballot } => self.learn(life, self.model.start + slot, ballot),
            Step::TruncateBefore { back } => self.truncate_before(life, back),
            Step::TruncateAfter { slot } => self.truncate_after(life, self.model.start + slot),
            Step::Install { ahead } => self.install(life, ahead),
            Step::Checkpoint => match life.log.checkpoint() {
                Ok(()) => Ok(()),
                Err(error) => self.stop(&error, "checkpoint"),
            },
            Step::Reopen => self.reopen(life),
            Step::Look => self.look(life),
        }
    }

    fn promise(&mut self, life: &Life, ballot: Ballot) -> Lived {
        let stale = ballot < self.model.promise;
        match life.log.promise(ballot, self.model.start) {
            Err(Error::StaleBallot { promised }) if stale => {
                ensure!(promised == self.model.promise, "{promised} is said to be promised");
                Ok(())
            }
            Err(error) => {
                // The record may have been written before the power went.
                self.model.promise = self.model.promise.max(ballot);
                self.stop(&error, "promise")
            }
            Ok(_) if stale => broken!("a stale promise was given"),
            Ok(ticket) => {
                self.model.promise = ballot;
                let promised = match ticket.wait() {
                    Ok(promised) => promised,
                    Err(error) => return self.stop(&error, "a promise's ticket"),
                };
                self.model.promise_acknowledged = ballot;
                // Everything before is durable with it.
                let mut told = BTreeMap::new();
                let visited = promised.for_each(|entry| {
                    let committed = entry.is_committed();
                    told.insert(entry.slot(), (entry.ballot(), entry.value().to_vec(), committed));
                    ControlFlow::Continue(())
                });
                if let Err(error) = visited {
                    return self.stop(&error, "a promise's answer");
                }
                for (n, slot) in &self.model.slots {
                    let told = told.get(n);
                    let same = match (&slot.committed, &slot.accepted, told) {
                        (Some(value), _, Some((_, told, true))) => value == told,
                        (None, Some((ballot, value)), Some((b, v, false))) => {
                            (ballot, value) == (b, v)
                        }
                        (None, None, None) => true,
                        _ => false,
                    };
                    ensure!(same, "the promise tells {told:?} of slot {n}");
                }
                Ok(())
            }
        }
    }

    fn accept(&mut self, life: &Life, n: u64, ballot: Ballot, value: Vec<u8>) -> Lived {
        let promise = self.model.promise;
        let slot = self.model.slots.entry(n).or_default();
        match life.log.accept(n, ballot, &value) {
            Err(Error::AlreadyCommitted { entry }) => {
                let known = slot.committed.as_deref() == Some(entry.value());
                ensure!(known, "{entry:?} is said to be committed");
                Ok(())
            }
            Err(Error::StaleBallot { promised }) => {
                ensure!(
                    ballot < promise && promised == promise,
                    "{promised} is said to be promised"
                );
                Ok(())
            }
            Err(Error::AnotherValue { .. }) => {
                let same = slot.accepted.as_ref().is_some_and(|(accepted, _)| *accepted == ballot);
                ensure!(same, "another value was never accepted under {ballot}");
                Ok(())
            }
            Err(error) => {
                slot.attempted.push((ballot, value));
                self.model.promise = promise.max(ballot);
                self.stop(&error, "accept")
            }
            Ok(ticket) => {
                ensure!(slot.committed.is_none(), "slot {n} was committed, and took another value");
                ensure!(ballot >= promise, "slot {n} took {ballot} below {promise}");
                slot.attempted.push((ballot, value.clone()));
                slot.accepted = Some((ballot, value));
                self.model.promise = promise.max(ballot);
                if let Err(error) = ticket.wait() {
                    return self.stop(&error, "an accept's ticket");
                }
                self.model.slots.entry(n).or_default().acknowledged = Some(ballot);
                if self.mode == Mode::Durable {
                    let acknowledged = &mut self.model.promise_acknowledged;
                    *acknowledged = (*acknowledged).max(ballot);
                }
                Ok(())
            }
        }
    }

    fn commit(&mut self, life: &Life, n: u64, right: bool) -> Lived {
        let Some(slot) = self.model.slots.get(&n).cloned() else {
            let missing = life.log.commit(n, Ballot::ZERO);
            let told = matches!(missing, Err(Error::SlotNotFound { .. }));
            return if told { Ok(()) } else { broken!("slot {n} is empty: {missing:?}") };
        };
        let accepted = slot.accepted.as_ref().map(|(ballot, _)| *ballot);
        let ballot =
            accepted.map_or(Ballot::ZERO, |b| Ballot::new(b.number, b.node + u64::from(!right)));
        match life.log.commit(n, ballot) {
            Err(Error::SlotNotFound { .. }) if accepted.is_none() => Ok(()),
            Err(Error::BallotMismatch { .. }) if !right && slot.committed.is_none() => Ok(()),
            Err(error) => self.stop(&error, "commit"),
            Ok(ticket) => {
                ensure!(right || slot.committed.is_some(), "slot {n} was committed under {ballot}");
                self.committing(n);
                match ticket.wait() {
                    Ok(()) => {
                        self.commit_done(n);
                        Ok(())
                    }
                    Err(error) => self.stop(&error, "a commit's ticket"),
                }
            }
        }
    }

    fn committing(&mut self, n: u64) {
        let slot = self.model.slots.entry(n).or_default();
        if slot.committed.is_none() {
            slot.committed = slot.accepted.as_ref().map(|(_, value)| value.clone());
        }
        self.model.deciding = self.model.run_from(self.model.deciding);
    }

    fn commit_done(&mut self, n: u64) {
        self.model.slots.entry(n).or_default().commit_acknowledged = true;
        self.model.decided = self.model.run_from(self.model.decided);
    }

    fn commit_batch(&mut self, life: &Life, slot: u64, count: u64) -> Lived {
        let first = self.model.start + slot;
        let pairs: Vec<_> = (first..first + count)
            .map(|n| {
                let slot = self.model.slots.get(&n);
                let accepted = slot.and_then(|slot| slot.accepted.as_ref());
                (n, accepted.map_or(Ballot::ZERO, |(ballot, _)| *ballot))
            })
            .collect();
        let done = match life.log.commit_batch(&pairs) {
            Ok(done) => done,
            Err(error) => {
                // Some of it may have been written.
                return self.stop(&error, "commit_batch");
            }
        };
        let told: Vec<bool> = done.results.iter().map(Result::is_ok).collect();
        for ((n, _), ok) in pairs.iter().zip(&told) {
            let there = self.model.slots.get(n).is_some_and(|slot| slot.accepted.is_some());
            ensure!(*ok == there, "the batch tells {ok} of slot {n}");
            if *ok {
                self.committing(*n);
            }
        }
        if let Err(error) = done.ticket.wait() {
            return self.stop(&error, "a batch's ticket");
        }
        for ((n, _), _) in pairs.iter().zip(&told).filter(|(_, ok)| **ok) {
            self.commit_done(*n);
        }
        Ok(())
    }

    fn commit_through(&mut self, life: &Life, last: u64) -> Lived {
        let from = self.model.decided;
        let there = |n: &u64| self.model.slots.get(n).is_some_and(|slot| slot.accepted.is_some());
        let whole = (from..=last).all(|n| there(&n));
        match life.log.commit_through(last) {
            Err(Error::Gap { slot }) if !whole => {
                ensure!(!there(&slot), "slot {slot} is no gap");
                Ok(())
            }
            Err(error) => self.stop(&error, "commit_through"),
            Ok(_) if !whole => broken!("a gap was passed over"),
            Ok(ticket) => {
                (from..=last).for_each(|n| self.committing(n));
                if let Err(error) = ticket.wait() {
                    return self.stop(&error, "commit_through's ticket");
                }
                (from..=last).for_each(|n| self.commit_done(n));
                Ok(())
            }
        }
    }

    fn learn(&mut self, life: &Life, n: u64, ballot: Ballot) -> Lived {
        let value = self.value(40);
        let slot = self.model.slots.entry(n).or_default();
        slot.attempted.push((ballot, value.clone()));
        match life.log.learn(n, ballot, &value) {
            Err(Error::AlreadyCommitted { entry }) => {
                let known = slot.committed.as_deref() == Some(entry.value());
                ensure!(known, "{entry:?} is said to be committed");
                Ok(())
            }
            Err(error) => self.stop(&error, "learn"),
            Ok(ticket) => {
                ensure!(
                    slot.committed.is_none(),
                    "slot {n} was committed, and learned another value"
                );
                slot.accepted = Some((ballot, value.clone()));
                slot.committed = Some(value);
                self.committing(n);
                if let Err(error) = ticket.wait() {
                    return self.stop(&error, "learn's ticket");
                }
                self.commit_done(n);
                Ok(())
            }
        }
    }

    fn truncate_before(&mut self, life: &Life, back: u64) -> Lived {
        let to = self.model.decided.saturating_sub(back);
        self.model.starting = self.model.starting.max(to);
        match life.log.truncate_before(to) {
            Err(error) => self.stop(&error, "truncate_before"),
            Ok(()) => {
                self.started(to);
                self.below_the_floor(life)
            }
        }
    }

    fn started(&mut self, to: u64) {
        self.model.start = self.model.start.max(to);
        self.model.decided = self.model.run_from(self.model.decided.max(self.model.start));
        self.model.deciding = self.model.deciding.max(self.model.decided);
        self.model.slots = self.model.slots.split_off(&self.model.start);
    }

    fn below_the_floor(&self, life: &Life) -> Lived {
        let Some(floor) = self.model.start.checked_sub(1) else { return Ok(()) };
        let guard = life.log.pin();
        let high = Ballot::new(u64::MAX, 0);
        let said = [
            life.log.read(floor, &guard).err(),
            life.log.accept(floor, high, b"late").err(),
            life.log.commit(floor, high).err(),
            life.log.learn(floor, high, b"late").err(),
        ];
        for error in said {
            match error {
                Some(Error::Truncated { floor: told }) if told == floor => {}
                Some(error) if !self.disk.is_on() => return self.stop(&error, ""),
                other => broken!("below the floor {floor}: {other:?}"),
            }
        }
        Ok(())
    }

    fn truncate_after(&mut self, life: &Life, n: u64) -> Lived {
        let slots = &self.model.slots;
        let highest = slots.iter().rev().find(|(_, slot)| slot.committed.is_some());
        let highest = highest.map(|(n, _)| *n).max(self.model.decided.checked_sub(1));
        match life.log.truncate_after(n) {
            Err(Error::BelowFrontier { committed }) => {
                ensure!(highest == Some(committed) && committed > n, "{committed} is no reason");
                Ok(())
            }
            Err(error) => {
                self.model.cutting = Some(n);
                self.stop(&error, "truncate_after")
            }
            Ok(()) => {
                ensure!(highest.is_none_or(|highest| highest <= n), "committed slots were dropped");
                for (_, slot) in self.model.slots.range_mut(n + 1..) {
                    slot.accepted = None;
                    slot.acknowledged = None;
                }
                Ok(())
            }
        }
    }

    fn install(&mut self, life: &Life, ahead: u64) -> Lived {
        let floor = self.model.decided + ahead / 2;
        let frontier = floor + ahead;
        self.model.starting = self.model.starting.max(floor + 1);
        self.model.deciding = self.model.deciding.max(frontier + 1);
        match life.log.install(floor, frontier) {
            Err(error) => self.stop(&error, "install"),
            Ok(()) => {
                self.model.decided = self.model.decided.max(frontier + 1);
                self.started(floor + 1);
                self.below_the_floor(life)
            }
        }
    }

    fn reopen(&mut self, life: &mut Life) -> Lived {
        if let Err(error) = life.log.close() {
            return self.stop(&error, "close");
        }
        let mut kept = self.model.clone();
        for slot in kept.slots.values_mut() {
            // An orderly end forgets nothing, in any mode.
            slot.acknowledged = slot.accepted.as_ref().map(|(ballot, _)| *ballot);
        }
        if self.mode == Mode::Durable {
            kept.promise_acknowledged = kept.promise;
        }
        let before: Vec<_> =
            kept.slots.iter().map(|(n, s)| (*n, s.accepted.clone(), s.committed.clone())).collect();
        self.model = kept;
        *life = self.open()?;
        let slots = self.model.slots.iter();
        let after: Vec<_> =
            slots.map(|(n, s)| (*n, s.accepted.clone(), s.committed.clone())).collect();
        ensure!(before == after, "an orderly end changed something");
        Ok(())
    }

    /// Everything that can be seen, against what must be there.
    fn look(&self, life: &Life) -> Lived {
        let model = &self.model;
        let guard = life.log.pin();
        let mut committed = BTreeMap::new();
        let visited = life.log.replay_from(0, |entry| {
            committed.insert(entry.slot(), entry.value().to_vec());
            ControlFlow::Continue(())
        });
        if let Err(error) = visited {
            return self.stop(&error, "replay");
        }
        let there = model.slots.iter().filter_map(|(n, s)| Some((*n, s.committed.clone()?)));
        let there: BTreeMap<_, _> = there.collect();
        ensure!(
            there == committed,
            "committed slots are {:?}, and should be {:?}",
            committed.keys(),
            there.keys()
        );
        let range = life.log.committed_range().map(|r| (r.lowest, r.highest, r.count));
        let expected = there.keys().next().zip(there.keys().next_back());
        let expected = expected.map(|(low, high)| (*low, *high, there.len() as u64));
        ensure!(range == expected, "the range is {range:?}, and should be {expected:?}");
        let scanned = match life.log.scan_uncommitted(&guard) {
            Ok(scanned) => scanned,
            Err(error) => return self.stop(&error, "scan"),
        };
        let scanned: Vec<_> =
            scanned.iter().map(|e| (e.slot(), e.ballot(), e.value().to_vec())).collect();
        let open = model.slots.iter().filter(|(_, slot)| slot.committed.is_none());
        let open: Vec<_> = open
            .filter_map(|(n, slot)| {
                slot.accepted.clone().map(|(ballot, value)| (*n, ballot, value))
            })
            .collect();
        ensure!(scanned == open, "uncommitted are {scanned:?}, and should be {open:?}");
        let used: u64 = open.iter().map(|(.., value)| (value.len() as u64).max(64)).sum();
        let stats = life.log.stats();
        ensure!(
            (stats.mutable_used, stats.uncommitted) == (used, open.len() as u64),
            "{} bytes of {} are said to be uncommitted, not {used} of {}",
            stats.mutable_used,
            stats.uncommitted,
            open.len()
        );
        let next = life.log.frontier().map_or(0, |frontier| frontier + 1);
        ensure!(next == model.decided, "slots below {next} are decided, not {}", model.decided);
        ensure!(life.log.promised() == model.promise, "{} is promised", life.log.promised());
        Ok(())
    }
}

impl Model {
    /// The first slot from this one on that is not committed.
    fn run_from(&self, from: u64) -> u64 {
        (from..).find(|n| self.slots.get(n).is_none_or(|slot| slot.committed.is_none())).unwrap()
    }
}
