//! The fixture of tests of single behaviours: a consensus log on a simulated disk, driven by
//! the test's thread.
#![allow(dead_code)] // Each test binary uses its own part.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use esker_consensus::{Ballot, ConsensusLog, Mode, Options, Slot};
use esker_disk::sim::{Persist, SimDisk};
use esker_log::Engine;

/// The directory of the log on a simulated disk.
pub const DIR: &str = "/consensus";
/// The ballots that tests use.
pub const LOW: Ballot = Ballot { number: 1, node: 1 };
pub const HIGH: Ballot = Ballot { number: 2, node: 1 };
pub const HIGHER: Ballot = Ballot { number: 2, node: 2 };

/// A log, its disk, and the engine that the test drives.
pub struct Setting {
    pub log: ConsensusLog,
    pub disk: SimDisk,
    pub engine: Engine,
}

impl Drop for Setting {
    fn drop(&mut self) {
        // The queue of a manual engine keeps its logs alive.
        self.engine.stop();
    }
}

/// Small segments on a disk, with an engine that the test drives itself.
pub fn driven(disk: &SimDisk, mode: Mode) -> (Options, Engine) {
    let engine = Engine::manual();
    let mut options = Options::on(Arc::new(disk.process()));
    options.mode = mode;
    options.log.segment_size = 64 << 10;
    options.log.engine = Some(engine.clone());
    (options, engine)
}

/// A log on a new disk.
pub fn log(mode: Mode) -> Setting {
    log_with(mode, |_| {})
}

/// The same, with other options.
pub fn log_with(mode: Mode, change: impl FnOnce(&mut Options)) -> Setting {
    open_on(&SimDisk::new(1), mode, change)
}

/// The log that is on a disk.
pub fn open_on(disk: &SimDisk, mode: Mode, change: impl FnOnce(&mut Options)) -> Setting {
    let (mut options, engine) = driven(disk, mode);
    change(&mut options);
    let log = ConsensusLog::builder(DIR).options(options).open().unwrap();
    Setting { log, disk: disk.clone(), engine }
}

impl Setting {
    /// Closes and opens again.
    pub fn reopen(self, mode: Mode) -> Setting {
        self.log.close().unwrap();
        let disk = self.disk.clone();
        drop(self);
        open_on(&disk, mode, |_| {})
    }

    /// The process dies; opens again.
    pub fn kill(self, mode: Mode) -> Setting {
        self.disk.kill();
        let disk = self.disk.clone();
        drop(self);
        disk.power_on();
        open_on(&disk, mode, |_| {})
    }

    /// The power fails, and nothing that was not synced is left; opens again.
    pub fn cut_power(self, mode: Mode) -> Setting {
        self.disk.power_cut(Persist::Nothing);
        let disk = self.disk.clone();
        drop(self);
        disk.power_on();
        open_on(&disk, mode, |_| {})
    }

    pub fn accept(&self, slot: u64, ballot: Ballot, value: &[u8]) {
        self.log.accept(Slot(slot), ballot, value).unwrap().blocking_wait().unwrap();
    }

    pub fn commit(&self, slot: u64, ballot: Ballot) {
        self.log.commit(Slot(slot), ballot).unwrap().blocking_wait().unwrap();
    }

    /// The committed value of a slot.
    pub fn committed(&self, slot: u64) -> Vec<u8> {
        let guard = self.log.pin();
        self.log.read_committed(Slot(slot), &guard).unwrap().value().to_vec()
    }

    /// The entries that are accepted and not committed.
    pub fn uncommitted(&self) -> Vec<(u64, Ballot, Vec<u8>)> {
        let guard = self.log.pin();
        let entries = self.log.maintenance().scan_uncommitted(&guard).unwrap();
        entries.iter().map(|e| (e.slot().0, e.ballot(), e.value().to_vec())).collect()
    }

    /// The slots that are committed, in order.
    pub fn committed_slots(&self) -> Vec<u64> {
        let mut slots = Vec::new();
        let visit = |entry: &esker_consensus::Entry<'_>| {
            slots.push(entry.slot().0);
            std::ops::ControlFlow::Continue(())
        };
        self.log.iterate(.., esker_consensus::IterateOptions::default(), visit).unwrap();
        slots
    }
}

/// A range of slots, from one of numbers.
pub fn slots(range: impl RangeBounds<u64>) -> (Bound<Slot>, Bound<Slot>) {
    (range.start_bound().map(|slot| Slot(*slot)), range.end_bound().map(|slot| Slot(*slot)))
}

/// The value that belongs to a slot: of another length and content for each.
pub fn value(slot: u64) -> Vec<u8> {
    let len = 1 + slot * 37 % 500;
    (0..len).map(|at| (slot * 31 + at * 7) as u8).collect()
}

/// Both modes.
pub const MODES: [Mode; 2] = [Mode::Durable, Mode::Volatile];
