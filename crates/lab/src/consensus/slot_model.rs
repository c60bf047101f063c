//! The contents that a consensus log must have, and may have.

use std::collections::BTreeMap;

use esker_consensus::{Ballot, Mode};

use super::setup::Setup;

/// A value that was tried in a slot: accepted or learned.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub ballot: Ballot,
    pub value: Vec<u8>,
    /// The number of cuts before it.
    pub cuts: u64,
}

/// The knowledge about a slot.
#[derive(Debug, Clone, Default)]
pub struct SlotModel {
    /// The values that a crash may find.
    pub attempted: Vec<Attempt>,
    /// The value that the log says is accepted now.
    pub accepted: Option<(Ballot, Vec<u8>)>,
    /// The highest accept that was acknowledged in a mode that means it.
    pub acknowledged: Option<Ballot>,
    /// The same before cuts that are pending.
    pub acknowledged_before_cut: Option<Ballot>,
    /// Committed, as far as the log knows; durable if acknowledged or found after a crash.
    pub committed: Option<Vec<u8>>,
    pub commit_acknowledged: bool,
}

impl SlotModel {
    /// The last attempt with this ballot and value.
    pub fn attempt_of(&self, ballot: Ballot, value: &[u8]) -> Option<&Attempt> {
        let mut attempts = self.attempted.iter().rev();
        attempts.find(|attempt| attempt.ballot == ballot && attempt.value == value)
    }
}

/// The values in the record of a raise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Raise {
    /// The first slot kept.
    pub start: u64,
    /// Slots below are decided. Later ones may be, too.
    pub next: u64,
    /// The application's state.
    pub app_state: u64,
    /// The promise.
    pub promise: Ballot,
}

/// A cut whose record is pending.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// The place among all cuts, from 1 on.
    pub number: u64,
    /// The first slot dropped.
    pub from: u64,
    /// The index of the last raise before it.
    pub raise: usize,
}

/// The contents that must be there.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub slots: BTreeMap<u64, SlotModel>,
    pub promise: Ballot,
    /// The highest promise that a record contains: in volatile mode an accept raises one in memory.
    pub promise_recorded: Ballot,
    pub promise_acknowledged: Ballot,
    /// The raises of the floor, in their order; one at least. A crash finds that at `raised` or a
    /// later one.
    pub raises: Vec<Raise>,
    pub raised: usize,
    /// Slots below are decided, durably.
    pub decided: u64,
    /// The cuts that are pending, in their order.
    pub cuts: Vec<Cut>,
    pub cuts_made: u64,
}

/// The outcome that an accept has to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The value is stored.
    Stored,
    /// The value was stored before, and is acknowledged again.
    Same,
    Stale,
    Committed,
    Another,
    Full,
}

/// The bytes that a value takes of the value budget.
fn charge(value: &[u8]) -> u64 {
    (value.len() as u64).max(64)
}

impl Model {
    /// The contents of a new log.
    pub fn new() -> Self {
        Self { raises: vec![Raise::default()], ..Self::default() }
    }

    /// The first slot from this one on that is not committed.
    pub fn run_from(&self, from: u64) -> u64 {
        (from..).find(|n| self.slots.get(n).is_none_or(|slot| slot.committed.is_none())).unwrap()
    }

    /// The values that are accepted and not committed.
    pub fn open(&self) -> Vec<(u64, Ballot, Vec<u8>)> {
        let open = self.kept().filter(|(_, slot)| slot.committed.is_none());
        open.filter_map(|(n, slot)| {
            slot.accepted.clone().map(|(ballot, value)| (*n, ballot, value))
        })
        .collect()
    }

    /// The bytes that these values take of the value budget.
    pub fn used(&self) -> u64 {
        self.open().iter().map(|(.., value)| charge(value)).sum()
    }

    /// The rules of an acceptor, and of the value budget.
    pub fn judge(&self, n: u64, ballot: Ballot, value: &[u8], room: u64) -> Verdict {
        let empty = SlotModel::default();
        let slot = self.slots.get(&n).unwrap_or(&empty);
        if let Some(chosen) = &slot.committed {
            return if chosen == value { Verdict::Same } else { Verdict::Committed };
        }
        if ballot < self.promise {
            return Verdict::Stale;
        }
        let before = match &slot.accepted {
            Some((accepted, there)) if *accepted == ballot => {
                return if there == value { Verdict::Same } else { Verdict::Another };
            }
            Some((_, there)) => charge(there),
            None => 0,
        };
        let more = charge(value).saturating_sub(before);
        if more > 0 && self.used() + more > room { Verdict::Full } else { Verdict::Stored }
    }

    /// A crash may find this value in a slot.
    pub fn attempt(&mut self, n: u64, ballot: Ballot, value: Vec<u8>) -> &mut SlotModel {
        let slot = self.slots.entry(n).or_default();
        slot.attempted.push(Attempt { ballot, value, cuts: self.cuts_made });
        slot
    }

    /// A value has its place in the order.
    pub fn accepted(&mut self, n: u64, ballot: Ballot, value: Vec<u8>, mode: Mode) {
        let slot = self.attempt(n, ballot, value.clone());
        slot.accepted = Some((ballot, value));
        self.promise = self.promise.max(ballot);
        if mode == Mode::Durable {
            self.promise_recorded = self.promise_recorded.max(ballot);
        }
    }

    /// A commit has its place in the order, or may have.
    pub fn committing(&mut self, n: u64) {
        let slot = self.slots.entry(n).or_default();
        if slot.committed.is_none() {
            slot.committed = slot.accepted.as_ref().map(|(_, value)| value.clone());
        }
    }

    /// Marks everything that has its place in the order as durable.
    pub fn durable(&mut self, setup: &Setup) {
        self.raise_durable(self.raises.len() - 1);
        self.cuts_durable(|_| true);
        for slot in self.slots.values_mut() {
            let accepted = slot.accepted.as_ref().filter(|_| setup.mode == Mode::Durable);
            slot.acknowledged = slot.acknowledged.max(accepted.map(|(ballot, _)| *ballot));
            slot.commit_acknowledged |= slot.committed.is_some();
        }
        self.promise_acknowledged = self.promise_acknowledged.max(self.promise_recorded);
        self.decided = self.run_from(self.decided);
    }

    /// An orderly end forgets nothing, in any mode.
    pub fn closed(&mut self, setup: &Setup) {
        self.promise_recorded = self.promise;
        self.durable(setup);
        for slot in self.slots.values_mut() {
            slot.acknowledged = slot.accepted.as_ref().map(|(ballot, _)| *ballot);
        }
    }
}
