//! Building a consensus log that is worth damaging.

use esker_consensus::{AcceptError, Ballot, ConsensusLog, Error, Slot, SnapshotBounds};
use esker_disk::sim::{Persist, SimDisk};
use esker_log::Engine;
use esker_testkit::{Changes, Files, Kind, Names, Payloads, Rng, Source, Traces, payloads_in};

use super::facts::{Fact, Facts, State};
use super::log_content::see;
use super::{DIR, files, options};

/// A log at rest.
#[derive(Debug)]
pub struct Sample {
    pub disk: SimDisk,
    pub source: Source,
    pub facts: Facts,
    pub traces: Traces,
}

/// The log of a seed.
pub fn sample(seed: u64) -> Result<Sample, String> {
    let mut built = Builder::new(seed);
    built.build(1 + built.rng.clone().below(3))?;
    let mut other = Builder::new(seed ^ 0xFFFF_0000);
    other.build(1)?;
    let mut names: Vec<String> = (1..9).map(|n| format!("{n:020}.seg")).collect();
    names.extend(["1.spare", "9.spare", "manifest", "mark", "note", "lock"].map(String::from));
    let (files, other) = (files(&built.disk), files(&other.disk));
    let Builder { disk, facts, traces, older, .. } = built;
    let source = Source { files, older, other, names };
    Ok(Sample { disk, source, facts, traces })
}

struct Builder {
    rng: Rng,
    disk: SimDisk,
    facts: Facts,
    state: State,
    traces: Traces,
    payloads: Payloads,
    older: Vec<Files>,
    clean: bool,
}

impl Builder {
    fn new(seed: u64) -> Self {
        let names = Names { page: "mark", manifest: "manifest", segment: ".seg" };
        Self {
            rng: Rng::new(seed, 4),
            disk: SimDisk::new(seed),
            facts: Facts::default(),
            state: State::default(),
            traces: Traces::new(names),
            payloads: Payloads::new(seed),
            older: Vec::new(),
            clean: true,
        }
    }

    fn build(&mut self, sessions: u64) -> Result<(), String> {
        for n in 0..sessions {
            self.session().map_err(|what| format!("session {n}: {what}"))?;
            if n + 1 < sessions {
                self.older.push(files(&self.disk));
            }
        }
        // The log without any corruption is what it should be.
        let engine = Engine::manual();
        let fork = self.disk.fork(1);
        let log = ConsensusLog::builder(DIR).options(options(&fork, &engine)).open();
        let log = log.map_err(|error| format!("reopening: {error:?}"))?;
        let same = self.is_as_known(&log);
        drop(log);
        engine.stop();
        same
    }

    fn is_as_known(&self, log: &ConsensusLog) -> Result<(), String> {
        let seen = see(log)?;
        if seen.may_be(&self.state) && seen.unreadable.is_empty() {
            return Ok(());
        }
        Err(format!("an undamaged log: {}", seen.differs(&self.state)))
    }

    fn session(&mut self) -> Result<(), String> {
        let engine = Engine::manual();
        let log = ConsensusLog::builder(DIR).options(options(&self.disk, &engine)).open();
        let log = log.map_err(|error| format!("opening: {error:?}"))?;
        self.is_as_known(&log)?;
        if !self.clean {
            // What nothing says was durable became durable by this opening.
            let bound = self.traces.bound(&files(&self.disk), &Changes::default());
            let step = self.traces.next();
            self.facts.0.iter_mut().filter(|(of, _)| *of >= bound).for_each(|(of, _)| *of = step);
        }
        self.stepped(Kind::Opened);
        for _ in 0..4 + self.rng.below(36) {
            let op = self.rng.below(100);
            self.op(&log, op).map_err(|error| format!("{op}: {error:?}"))?;
            if self.rng.percent(8) {
                engine.run();
            }
            if self.rng.percent(5) && self.older.len() < 6 {
                self.older.push(files(&self.disk));
            }
        }
        self.clean = self.rng.percent(40);
        match self.rng.below(4) {
            _ if self.clean => {
                log.close().map_err(|error| format!("closing: {error:?}"))?;
                self.stepped(Kind::Closed);
            }
            0 | 1 => self.disk.kill(),
            2 => self.disk.power_cut(Persist::Nothing),
            _ => self.disk.power_cut(Persist::Random),
        }
        drop(log);
        engine.stop();
        self.disk.power_on();
        Ok(())
    }

    fn stepped(&mut self, kind: Kind) {
        let (step, facts) = (self.traces.next(), &self.facts.0);
        self.traces.step(kind, &files(&self.disk), |bytes| {
            payloads_in(bytes).iter().any(|(_, marked)| {
                let of_step = facts.iter().rev().take_while(|(of, _)| *of == step);
                of_step.map(|(_, fact)| fact).any(|fact| match fact {
                    Fact::Accepted { value, .. } | Fact::Learned { value, .. } => {
                        value.starts_with(marked)
                    }
                    _ => false,
                })
            })
        });
    }

    /// Something is durable.
    fn knows(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            self.state.learn(&fact);
            self.facts.0.push((self.traces.next(), fact));
        }
        self.stepped(Kind::Acknowledged { page_is_synced: false });
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.below(12) {
            0 => 1,
            1..8 => 12 + self.rng.index(100),
            8..11 => 12 + self.rng.index(1500),
            _ => 4000 + self.rng.index(9000),
        };
        self.payloads.next(len)
    }

    fn ballot(&mut self) -> Ballot {
        let promised = self.state.promise;
        let rise = u64::from(self.rng.percent(15));
        Ballot {
            number: (promised.number + rise).max(1),
            node: if rise > 0 { 1 } else { promised.node.max(1) },
        }
    }

    /// A slot at or above the frontier that is not committed.
    fn open_slot(&mut self) -> u64 {
        let mut slot = self.state.next + self.rng.below(8) * self.rng.below(3);
        while self.state.slots.get(&slot).is_some_and(|slot| slot.committed) {
            slot += 1;
        }
        slot
    }

    fn op(&mut self, log: &ConsensusLog, op: u64) -> Result<(), Error> {
        match op {
            0..10 => {
                let promised = self.state.promise;
                let ballot = Ballot { number: promised.number + 1, node: 1 + self.rng.below(3) };
                log.promise(ballot, Slot(self.state.start))?.blocking_wait()?;
                self.knows(vec![Fact::Promised(ballot)]);
            }
            10..44 => {
                let (slot, ballot, value) = (self.open_slot(), self.ballot(), self.value());
                match log.accept(Slot(slot), ballot, &value) {
                    Ok(ticket) => ticket.blocking_wait()?,
                    // The ballot brought another value for the slot before.
                    Err(AcceptError::AnotherValue { .. }) => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
                self.knows(vec![Fact::Accepted { slot, ballot, value }]);
            }
            44..50 => {
                let (first, ballot) = (self.open_slot(), self.ballot());
                let slots: Vec<u64> = (first..first + 4)
                    .filter(|slot| !self.state.slots.contains_key(slot))
                    .collect();
                let values: Vec<_> = slots.iter().map(|slot| (*slot, self.value())).collect();
                let pairs: Vec<_> =
                    values.iter().map(|(slot, value)| (Slot(*slot), value.as_slice())).collect();
                log.accept_batch(ballot, &pairs)?.blocking_wait()?;
                let fact = |(slot, value)| Fact::Accepted { slot, ballot, value };
                self.knows(values.into_iter().map(fact).collect());
            }
            50..74 => {
                let open = self.state.slots.iter().filter(|(_, slot)| !slot.committed);
                let open: Vec<_> = open.map(|(n, slot)| (*n, slot.ballot)).collect();
                let Some((slot, ballot)) = self.rng.pick(&open).copied() else { return Ok(()) };
                log.commit(Slot(slot), ballot)?.blocking_wait()?;
                self.knows(vec![Fact::Committed { slot }]);
            }
            74..78 => {
                let next = self.state.next;
                let run = (next..).take_while(|slot| self.state.slots.contains_key(slot));
                let Some(last) = run.last() else { return Ok(()) };
                log.commit_through(Slot(last))?.blocking_wait()?;
                self.knows((next..=last).map(|slot| Fact::Committed { slot }).collect());
            }
            78..85 => {
                let (slot, ballot, value) = (self.open_slot(), self.ballot(), self.value());
                log.learn(Slot(slot), ballot, &value)?.blocking_wait()?;
                self.knows(vec![Fact::Learned { slot, ballot, value }]);
            }
            85..90 => {
                let start = self.state.start;
                let slot = start + self.rng.below(self.state.next - start + 1);
                log.truncate_before(Slot(slot))?.blocking_wait()?;
                if slot > start {
                    self.knows(vec![Fact::Raised { start: slot, next: slot }]);
                }
            }
            90..92 => {
                let floor = self.state.next + self.rng.below(3);
                let frontier = floor + self.rng.below(3);
                if frontier < 300 {
                    log.snapshots()
                        .install(SnapshotBounds { floor: Slot(floor), frontier: Slot(frontier) })?
                        .blocking_wait()?;
                    self.knows(vec![Fact::Raised { start: floor + 1, next: frontier + 1 }]);
                }
            }
            92..94 => {
                let committed = self.state.slots.iter().rev().find(|(_, slot)| slot.committed);
                let highest = committed.map_or(0, |(n, _)| *n).max(self.state.next);
                let above = highest + self.rng.below(4);
                log.truncate_from(Slot(above).next())?.blocking_wait()?;
                if self.state.slots.keys().any(|slot| *slot > above) {
                    self.knows(vec![Fact::Cut { above }]);
                }
            }
            _ => {
                log.maintenance().checkpoint()?;
                self.stepped(Kind::Other);
            }
        }
        Ok(())
    }
}
