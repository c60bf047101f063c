//! Lives in a row on one disk, each ended by a power cut: **durable ⊆ recovered ⊆ attempted**.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use esker_consensus::{Ballot, ConsensusLog, Mode, Options, ReadError, Slot};
use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_testkit::SplitMix64;

use super::actors::Actor;
use super::{CallOutcome, Counts, End, Event, Life, Operation, answers, ensure, reads, value};

const LIVES: u64 = 3;
const WRITERS: u64 = 3;
/// Bounds the threads that run until the writers are done.
const MOST: u64 = 2000;

/// The facts that hold over all lives.
#[derive(Debug, Default)]
struct Facts {
    /// Values that may be in a slot, and those that may be committed.
    attempted: BTreeSet<(u64, Ballot)>,
    chosen: BTreeSet<(u64, Ballot)>,
    /// Durable: accepted under this ballot or a higher one.
    accepted: BTreeMap<u64, Ballot>,
    /// Durably committed, under whatever ballot.
    decided: BTreeSet<u64>,
    /// Seen as durably committed.
    committed: BTreeMap<u64, Ballot>,
    promised: Ballot,
    /// The first slot kept: durably, and all that were asked for.
    start: u64,
    starts: BTreeSet<u64>,
    /// The first slot not decided.
    next: u64,
}

/// Runs one seed.
pub fn run(seed: u64, steps: u64) -> Result<Counts, String> {
    let mut rng = SplitMix64::new(seed);
    let disk = SimDisk::new(seed);
    let mode = if seed % 4 == 3 { Mode::Volatile } else { Mode::Durable };
    let cache = if rng.percent(50) { 4 << 10 } else { 1 << 20 };
    let mut facts = Facts { starts: BTreeSet::from([0]), ..Facts::default() };
    let mut counts = Counts::default();
    for life in 0..LIVES {
        let at = |what| format!("{mode:?}, life {life}: {what}");
        let log = open(&disk, mode, cache, &mut rng).map_err(at)?;
        let mut history = facts.recovered(&log).map_err(at)?;
        let operations = disk.operations() + 20 + rng.below(steps * 12);
        if rng.percent(80) {
            disk.cut_power_at(CutPoint::During(operations), Persist::Random);
        }
        history.extend(live(&log, &disk, seed ^ life << 56, steps).map_err(at)?);
        disk.cancel_cut();
        if disk.is_on() {
            disk.power_cut(Persist::Random);
        }
        drop(log);
        counts.crashes += 1;
        answers::check(&history).map_err(at)?;
        reads::check(&history, &mut facts.committed).map_err(at)?;
        counts.look(&history);
        facts.learn(&history, mode);
    }
    disk.power_on();
    let log = open(&disk, mode, cache, &mut rng)?;
    facts.recovered(&log).map_err(|what| format!("{mode:?}, at last: {what}"))?;
    log.close().map_err(|error| format!("closing: {error:?}"))?;
    Ok(counts)
}

/// Opens the log; half of the time a second crash comes during recovery.
fn open(
    disk: &SimDisk,
    mode: Mode,
    cache: u64,
    rng: &mut SplitMix64,
) -> Result<ConsensusLog, String> {
    disk.power_on();
    let mut cuts = rng.below(3);
    loop {
        if cuts > 0 {
            let at = disk.operations() + rng.below(40);
            disk.cut_power_at(CutPoint::During(at), Persist::Random);
        }
        let mut options = Options::on(Arc::new(disk.process()));
        options.mode = mode;
        options.log.segment_size = 64 << 10;
        options.checkpoint_every = 1024;
        options.cache_size = cache;
        let opened = ConsensusLog::builder("/history").options(options).open();
        disk.cancel_cut();
        match opened {
            Ok(log) if disk.is_on() => return Ok(log),
            Err(error) if disk.is_on() => return Err(format!("opening: {error:?}")),
            _ => disk.power_on(),
        }
        cuts = cuts.saturating_sub(1);
    }
}

fn live(log: &ConsensusLog, disk: &SimDisk, seed: u64, steps: u64) -> Result<Vec<Event>, String> {
    let life = Life::new(log, disk);
    let mut history = Vec::new();
    std::thread::scope(|threads| {
        let run = |node, act: fn(&mut Actor<'_>, u64), times| {
            let life = &life;
            threads.spawn(move || {
                let mut actor = Actor::new(life, seed, node);
                act(&mut actor, times);
                actor.into_events()
            })
        };
        let writers: Vec<_> =
            (1..=WRITERS).map(|n| run(n, |actor, n| actor.write(n), steps)).collect();
        let others = [
            run(11, |actor, n| actor.promise(n), MOST),
            run(12, |actor, n| actor.promise(n), MOST),
            run(13, |actor, n| actor.raise(n), MOST),
            run(14, |actor, n| actor.read(n), MOST),
        ];
        let written: Vec<_> = writers.into_iter().map(|thread| thread.join()).collect();
        life.over.store(true, SeqCst);
        for events in written.into_iter().chain(others.into_iter().map(|thread| thread.join())) {
            history.extend(events.unwrap());
        }
    });
    match life.first_wrong() {
        Some(what) => Err(what),
        None => Ok(history),
    }
}

impl Facts {
    /// Holds what recovery found against what must be there, and begins a history with it.
    fn recovered(&mut self, log: &ConsensusLog) -> Result<Vec<Event>, String> {
        let start = log.floor().map_or(0, |floor| floor.0 + 1);
        ensure!(
            start >= self.start && self.starts.contains(&start),
            "the first slot is {start}, and was {}",
            self.start
        );
        let promised = log.promised().unwrap_or(Ballot::ZERO);
        ensure!(promised >= self.promised, "{promised} is promised, and was {}", self.promised);
        let next = log.frontier().map_or(0, |frontier| frontier.0 + 1);
        ensure!(next >= self.next, "slots below {next} are decided, and were below {}", self.next);
        let event = |what| Event { call: 0, ret: 0, what };
        let done = CallOutcome::Durable(0);
        let mut history = vec![event(Operation::Raise { start, next, done })];
        let highest = self.attempted.last().map_or(0, |(slot, _)| *slot);
        let guard = log.pin();
        for slot in start..=highest {
            let was = self.accepted.remove(&slot);
            let entry = match log.read(Slot(slot), &guard) {
                Ok(entry) => entry,
                Err(ReadError::SlotNotFound { .. }) => {
                    let lost = was.is_some() || self.decided.contains(&slot);
                    ensure!(!lost, "slot {slot} is empty, and was accepted under {was:?}");
                    continue;
                }
                Err(error) => return Err(format!("slot {slot}: {error:?}")),
            };
            let (ballot, committed) = (entry.ballot(), entry.is_committed());
            ensure!(
                self.attempted.contains(&(slot, ballot)) && entry.value() == value(slot, ballot),
                "slot {slot} holds a value that was never tried: {entry:?}"
            );
            ensure!(
                committed || was.is_none_or(|was| ballot >= was),
                "slot {slot} was accepted under {was:?}, and holds {ballot}"
            );
            ensure!(
                committed || !self.decided.contains(&slot),
                "slot {slot} is not committed any more"
            );
            history.push(event(Operation::Accept { slot, ballot, done }));
            self.accepted.insert(slot, ballot);
            if committed {
                ensure!(
                    self.chosen.contains(&(slot, ballot)),
                    "slot {slot} is committed under {ballot}, which no caller committed"
                );
                let known = *self.committed.entry(slot).or_insert(ballot);
                ensure!(known == ballot, "slot {slot} was committed under {known}, now {ballot}");
                self.decided.insert(slot);
                history.push(event(Operation::Commit { slot, ballot, done }));
            }
        }
        (self.start, self.promised, self.next) = (start, promised, next);
        self.starts = BTreeSet::from([start]);
        self.accepted = self.accepted.split_off(&start);
        self.decided = self.decided.split_off(&start);
        Ok(history)
    }

    /// Adds what the life certainly left.
    fn learn(&mut self, history: &[Event], mode: Mode) {
        for event in history {
            match &event.what {
                Operation::Accept { slot, ballot, done } => {
                    if *done != CallOutcome::Refused {
                        self.attempted.insert((*slot, *ballot));
                    }
                    if let (CallOutcome::Durable(_), Mode::Durable) = (done, mode) {
                        let accepted = self.accepted.entry(*slot).or_insert(*ballot);
                        *accepted = (*accepted).max(*ballot);
                        self.promised = self.promised.max(self.raises(history, event, *ballot));
                    }
                }
                Operation::Commit { slot, ballot, done }
                | Operation::Learn { slot, ballot, done } => {
                    if *done != CallOutcome::Refused {
                        self.chosen.insert((*slot, *ballot));
                        if matches!(event.what, Operation::Learn { .. }) {
                            self.attempted.insert((*slot, *ballot));
                        }
                    }
                    if let CallOutcome::Durable(_) = done {
                        self.decided.insert(*slot);
                    }
                }
                Operation::Promise { ballot, done: CallOutcome::Durable(_), .. } => {
                    self.promised = self.promised.max(*ballot);
                }
                Operation::Raise { start, next, done } => {
                    self.starts.insert(*start);
                    if let CallOutcome::Durable(_) = done {
                        self.start = self.start.max(*start);
                        self.next = self.next.max(*next);
                    }
                }
                Operation::Frontier { next } => self.next = self.next.max(*next),
                _ => {}
            }
        }
    }

    /// The ballot that an accept promises: none where its slot was committed before. What recovery
    /// found promises nothing either: it may have been learned, and the promise was checked by
    /// itself.
    fn raises(&self, history: &[Event], accept: &Event, ballot: Ballot) -> Ballot {
        let Operation::Accept { slot, .. } = accept.what else { return Ballot::ZERO };
        let known = accept.ret == 0 || answers::may_be_chosen(history, slot, ballot, accept.ret);
        if known { Ballot::ZERO } else { ballot }
    }
}

impl Counts {
    fn look(&mut self, history: &[Event]) {
        self.events += history.len() as u64;
        for event in history {
            match &event.what {
                Operation::Promise { answer: Some(answer), .. } => match answer.end {
                    End::Whole => self.whole += 1,
                    End::Truncated(_) => self.refused += 1,
                    _ => {}
                },
                Operation::Raise { done: CallOutcome::Durable(_), .. } => self.raised += 1,
                _ => {}
            }
        }
    }
}
