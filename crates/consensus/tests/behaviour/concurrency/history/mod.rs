//! Histories of a consensus log under several threads: what was called when, and what came of it.
//!
//! - `actors`: the threads. Each records its own events.
//! - `answers`: what a promise's answer must hold, and what must be refused after it.
//! - `reads`: what readers, iterations and scans must see.
//! - `lives`: lives in a row on one disk, each ended by a power cut, and what recovery must find.
//!
//! An event has the tick of its call and the tick of its return. An operation takes its place in
//! the order somewhere between the two, so of two events one certainly comes first only if it
//! returned before the other was called. Every rule uses only what is certain.
#![allow(clippy::unwrap_used)]

mod actors;
mod answers;
mod lives;
mod reads;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use esker_consensus::{Ballot, ConsensusLog, Entry};
use esker_disk::sim::SimDisk;

pub use lives::run;

/// The outcome of an operation that changes the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// Nothing was changed.
    Refused,
    /// The power went; it may have been recorded or not.
    Unknown,
    /// It has its place in the order, and was not seen to become durable.
    Ordered,
    /// It was durable at this tick.
    Durable(u64),
}

impl CallOutcome {
    pub fn is_ordered(self) -> bool {
        matches!(self, CallOutcome::Ordered | CallOutcome::Durable(_))
    }

    /// Whether it was durable before a tick.
    pub fn is_durable_before(self, tick: u64) -> bool {
        matches!(self, CallOutcome::Durable(at) if at < tick)
    }
}

/// The end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Whole,
    /// The visitor broke off.
    Stopped,
    Truncated(u64),
    /// The power went.
    Off,
}

/// The list that came with a promise.
#[derive(Debug, Clone)]
pub struct Answer {
    pub floor: Option<u64>,
    /// Slot, ballot, and whether it is committed.
    pub seen: Vec<(u64, Ballot, bool)>,
    pub end: End,
    pub returned: u64,
}

#[derive(Debug, Clone)]
pub enum Operation {
    Accept {
        slot: u64,
        ballot: Ballot,
        done: CallOutcome,
    },
    Commit {
        slot: u64,
        ballot: Ballot,
        done: CallOutcome,
    },
    Learn {
        slot: u64,
        ballot: Ballot,
        done: CallOutcome,
    },
    Promise {
        ballot: Ballot,
        from: u64,
        done: CallOutcome,
        answer: Option<Answer>,
    },
    /// Truncation or `install`: the first slot to keep, and the first not decided.
    Raise {
        start: u64,
        next: u64,
        done: CallOutcome,
    },
    /// A committed read: the ballot found, `None` when nothing is committed, or the end.
    Read {
        slot: u64,
        found: Result<Option<Ballot>, End>,
    },
    /// A range from this slot on, or one without a start.
    Iterate {
        from: Option<u64>,
        seen: Vec<(u64, Ballot)>,
        end: End,
    },
    Scan {
        seen: Vec<(u64, Ballot)>,
    },
    /// The first slot that is not known to be decided.
    Frontier {
        next: u64,
    },
}

#[derive(Debug, Clone)]
pub struct Event {
    pub call: u64,
    pub ret: u64,
    pub what: Operation,
}

/// The state that the threads of one life share.
pub struct Life<'a> {
    pub log: &'a ConsensusLog,
    pub disk: &'a SimDisk,
    /// Ticks of calls and returns.
    clock: AtomicU64,
    /// Whether the writers are done.
    pub over: AtomicBool,
    /// Errors that nothing explains.
    wrong: Mutex<Vec<String>>,
}

impl<'a> Life<'a> {
    pub fn new(log: &'a ConsensusLog, disk: &'a SimDisk) -> Self {
        let clock = AtomicU64::new(1);
        Self { log, disk, clock, over: AtomicBool::new(false), wrong: Mutex::default() }
    }

    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    pub fn is_over(&self) -> bool {
        self.over.load(SeqCst) || !self.disk.is_on()
    }

    /// An error that only a power cut explains.
    pub fn unexplained(&self, what: &str, error: &dyn std::fmt::Debug) {
        if self.disk.is_on() {
            self.wrong.lock().unwrap().push(format!("{what}: {error:?}"));
        }
    }

    /// Looks at an entry; its value is a function of its slot and ballot.
    pub fn whole(&self, entry: &Entry<'_>) {
        if entry.value() != value(entry.slot().0, entry.ballot()) {
            self.wrong.lock().unwrap().push(format!("{entry:?} has another value"));
        }
    }

    pub fn first_wrong(&self) -> Option<String> {
        self.wrong.lock().unwrap().first().cloned()
    }
}

/// The value of a slot under a ballot. Some are large, so that segments fill and are freed.
pub fn value(slot: u64, ballot: Ballot) -> Vec<u8> {
    let seed = slot << 24 ^ ballot.number << 8 ^ ballot.node;
    let mut value = seed.to_le_bytes().to_vec();
    let len = if slot.is_multiple_of(4) { 1500 } else { slot % 60 };
    value.extend((0..len).map(|at| (seed.wrapping_mul(31) + at) as u8));
    value
}

/// Counts of the events that a run is made for.
#[derive(Debug, Default)]
pub struct Counts {
    pub events: u64,
    /// Answers that were whole, and that were refused.
    pub whole: u64,
    pub refused: u64,
    /// Floors that were raised.
    pub raised: u64,
    pub crashes: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.events += other.events;
        self.whole += other.whole;
        self.refused += other.refused;
        self.raised += other.raised;
        self.crashes += other.crashes;
    }
}

macro_rules! ensure {
    ($holds:expr, $($reported:tt)*) => { if !$holds { return Err(format!($($reported)*)) } };
}

use ensure;
