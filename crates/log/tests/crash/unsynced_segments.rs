//! Records are in several segments that no sync has reached, and power fails at every operation
//! and leaves any of their blocks; and again in the next life.
//!
//! Guards: a footer that vouches for units which are not durable; a floor that names a segment
//! whose header is not durable; and a header that is lost between two that stayed, taken for
//! corruption.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::{Direct, Engine, Error, Log, Options, Policy};

/// More than half of a segment: slow work follows.
const LARGE: usize = 40_000;
const SMALL: usize = 300;

/// A step of the program.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Hands over a record, in a unit of its own.
    Append(usize),
    Flush,
    TruncateBefore(u64),
}

use Step::{Append, Flush, TruncateBefore};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::reading::Item;
use crate::corruption_kit::repairs::check_log;
use crate::corruption_kit::sample::{options, payload};

#[derive(Debug)]
struct SimEnv {
    disk: SimDisk,
    /// At most so many records are kept, if there is a limit.
    records: Option<u64>,
    accepted: Vec<Item>,
    durable: u64,
    /// Records up to this one may have been dropped.
    dropped: u64,
    life: &'static str,
}

impl SimEnv {
    fn new(seed: u64, records: Option<u64>) -> Self {
        let disk = SimDisk::new(seed);
        Self { disk, records, accepted: Vec::new(), durable: 0, dropped: 0, life: "first" }
    }

    fn options(&self, engine: &Engine) -> Options {
        let mut options = options(&self.disk.process(), engine);
        (options.direct, options.dsync) = (Direct::Off, false);
        options.policy = Policy::OsBuffered;
        options.segment_records = Some(2);
        options.retention.records = self.records;
        options
    }

    fn step(&mut self, log: &Log, engine: &Engine, step: Step) -> Result<(), Error> {
        match step {
            Append(len) => {
                let prev = self.accepted.last().map_or(0, Item::last);
                let (seq, payload) = (prev + 1, payload(self.life, prev + 1, len));
                let ticket = log.append(&payload)?;
                self.accepted.push(Item::Record { seq, prev, payload });
                drop(ticket);
                engine.run();
            }
            Flush => drop(log.barrier()?.blocking_wait()?),
            TruncateBefore(seq) => {
                self.dropped = self.dropped.max(seq - 1);
                log.retention().truncate_before(seq)?;
            }
        }
        Ok(())
    }

    /// One life: what opening left is there, and the steps are gone through until power fails.
    fn live(&mut self, steps: &[Step]) -> Result<(), String> {
        let engine = Engine::manual();
        let lived = match Log::builder(DIR).options(self.options(&engine)).open() {
            Ok(log) => self.go(&log, &engine, steps),
            Err(_) if !self.disk.is_on() => Ok(()),
            Err(error) => Err(format!("{error:?}")),
        };
        engine.stop();
        lived
    }

    fn go(&mut self, log: &Log, engine: &Engine, steps: &[Step]) -> Result<(), String> {
        if self.disk.is_on() {
            self.compare(log)?;
        }
        for step in steps {
            let done = self.step(log, engine, *step);
            self.durable = self.durable.max(log.durable().0);
            match done {
                Err(_) if !self.disk.is_on() => break,
                Err(error) => return Err(format!("{step:?}: {error:?}")),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Checks that durable records are there, and none that was not accepted.
    fn compare(&mut self, log: &Log) -> Result<(), String> {
        let (last, after) = (log.storage().recovery().last.0, log.storage().metadata().after.0);
        let most = self.accepted.last().map_or(0, Item::last);
        if last < self.durable || last > most {
            return Err(format!("{} durable, {most} accepted, {last} found", self.durable));
        }
        // Retention lets the newest record stay, whatever a crash took.
        let retained = last.saturating_sub(1);
        let may_drop = if self.records.is_some() { retained } else { self.dropped };
        if after > may_drop {
            return Err(format!("{after} of {last} dropped, and {may_drop} may be"));
        }
        self.accepted.truncate(last as usize);
        self.durable = last;
        check_log(log, self.accepted.get(after as usize..).unwrap_or_default())
    }
}

/// A life with these steps ends at an operation, and the next one somewhere; `false` when the first
/// does not come so far.
fn two_cuts(sim_env: &mut SimEnv, steps: &[Step], point: CutPoint, persist: Persist) -> Lived {
    sim_env.disk.cut_power_at(point, persist);
    sim_env.live(steps)?;
    let reached = !sim_env.disk.is_on();
    sim_env.disk.cancel_cut();
    sim_env.disk.power_cut(persist);
    sim_env.disk.power_on();

    sim_env.life = "second";
    sim_env.live(&[Append(SMALL), Append(SMALL), Append(SMALL)])?;
    sim_env.disk.power_cut(persist);
    sim_env.disk.power_on();
    sim_env.live(&[])?;
    Ok(reached)
}

type Lived = Result<bool, String>;

/// Every operation, before it and in the middle of it, with so many subsets of what may be left.
fn everywhere(steps: &[Step], records: Option<u64>, subsets: u64) {
    let mut cases = Cases::default();
    for operation in 0.. {
        let mut reached = false;
        for point in [CutPoint::Before(operation), CutPoint::During(operation)] {
            for seed in 0..subsets {
                let persist = [Persist::Nothing, Persist::Everything];
                let persist = persist.get(seed as usize).copied().unwrap_or(Persist::Random);
                let mut sim_env = SimEnv::new(seed * 1000 + operation, records);
                cases.run(format!("{point:?} {persist:?} {seed}"), || {
                    reached |= two_cuts(&mut sim_env, steps, point, persist)?;
                    Ok(())
                });
            }
        }
        if !reached {
            break;
        }
    }
    cases.finish(500);
}

/// The first segment is full, its last unit is in the cache alone, and slow work runs. A wrong
/// footer shows only where a crash keeps the footer and the next header and loses the unit: in few
/// of the subsets.
#[test]
fn footer_is_written_after_its_units_are_durable() {
    let steps = [Append(SMALL), Flush, Append(SMALL), Append(LARGE), Append(SMALL)];
    everywhere(&steps, None, 96);
}

/// Three segments are in the cache alone.
#[test]
fn header_lost_between_two_kept_ones_is_not_corruption() {
    everywhere(&[Append(SMALL); 7], None, 12);
}

/// All of the first segment is durable and nothing of the second, not even its header.
#[test]
fn truncation_waits_for_the_header_of_the_trim_point() {
    let first = [Append(SMALL), Append(SMALL), Flush, Append(SMALL)];
    everywhere(&[&first[..], &[TruncateBefore(3), Append(SMALL)]].concat(), None, 6);
}

#[test]
fn retention_waits_for_the_header_of_the_trim_point() {
    everywhere(&[Append(SMALL), Append(SMALL), Flush, Append(LARGE), Append(SMALL)], Some(1), 6);
}
