//! The contents that a consensus log must have, and may have.

use std::collections::BTreeMap;

use esker_consensus::{Ballot, Mode};

use super::setup::Setup;

/// The knowledge about a slot.
#[derive(Debug, Clone, Default)]
pub struct SlotModel {
    /// The values ever tried under a ballot, with learned ones.
    pub attempted: Vec<(Ballot, Vec<u8>)>,
    /// The value that the log says is accepted now.
    pub accepted: Option<(Ballot, Vec<u8>)>,
    /// The highest accept that was acknowledged in a mode that means it.
    pub acknowledged: Option<Ballot>,
    /// Committed, as far as the log knows; durable if acknowledged or found after a crash.
    pub committed: Option<Vec<u8>>,
    pub commit_acknowledged: bool,
}

/// The contents that must be there.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub slots: BTreeMap<u64, SlotModel>,
    pub promise: Ballot,
    /// The highest promise that a record contains: in volatile mode an accept raises one in memory.
    pub promise_recorded: Ballot,
    pub promise_acknowledged: Ballot,
    /// The first slot kept: acknowledged, and perhaps.
    pub start: u64,
    pub starting: u64,
    /// The first slot kept and the state of the application, after each record that sets them. One
    /// from `raised` on is recovered.
    pub raises: Vec<(u64, u64)>,
    pub raised: usize,
    /// Slots below are decided: acknowledged, and perhaps.
    pub decided: u64,
    pub deciding: u64,
    /// Accepts from this slot on may be dropped.
    pub cutting: Option<u64>,
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
        Self { raises: vec![(0, 0)], ..Self::default() }
    }

    /// The first slot from this one on that is not committed.
    pub fn run_from(&self, from: u64) -> u64 {
        (from..).find(|n| self.slots.get(n).is_none_or(|slot| slot.committed.is_none())).unwrap()
    }

    /// As far as slots may be decided, were this one, too.
    pub fn run_with(&self, n: u64) -> u64 {
        let from = self.run_from(self.deciding);
        if n == from { self.run_from(n + 1) } else { from }
    }

    /// The values that are accepted and not committed.
    pub fn open(&self) -> Vec<(u64, Ballot, Vec<u8>)> {
        let open = self.slots.iter().filter(|(_, slot)| slot.committed.is_none());
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

    /// A value has its place in the order.
    pub fn accepted(&mut self, n: u64, ballot: Ballot, value: Vec<u8>, mode: Mode) {
        let slot = self.slots.entry(n).or_default();
        slot.attempted.push((ballot, value.clone()));
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
        self.deciding = self.run_from(self.deciding);
    }

    /// Marks everything that has its place in the order as durable.
    pub fn durable(&mut self, setup: &Setup) {
        for slot in self.slots.values_mut() {
            let accepted = slot.accepted.as_ref().filter(|_| setup.mode == Mode::Durable);
            slot.acknowledged = slot.acknowledged.max(accepted.map(|(ballot, _)| *ballot));
            slot.commit_acknowledged |= slot.committed.is_some();
        }
        self.promise_acknowledged = self.promise_acknowledged.max(self.promise_recorded);
        self.raised = self.raises.len() - 1;
        self.decided = self.run_from(self.decided);
        self.deciding = self.deciding.max(self.decided);
    }

    /// The floor is about to be raised, and the application's state replaced if that is wanted: by
    /// the number returned.
    pub fn raising(&mut self, to: u64, with_app_state: bool) -> Option<u64> {
        let (start, stored) = self.raises.last().copied().unwrap_or_default();
        let app_state = stored + u64::from(with_app_state);
        self.starting = self.starting.max(to);
        if (self.starting, app_state) != (start, stored) {
            self.raises.push((self.starting, app_state));
        }
        with_app_state.then_some(app_state)
    }

    /// The first slot kept is this one, or a later one.
    pub fn started(&mut self, to: u64) {
        self.start = self.start.max(to);
        self.raised = self.raises.len() - 1;
        self.decided = self.decided.max(self.start);
        self.deciding = self.run_from(self.deciding.max(self.decided));
        self.slots = self.slots.split_off(&self.start);
    }
}

impl Model {
    /// An orderly end forgets nothing, in any mode.
    pub fn closed(&mut self, setup: &Setup) {
        self.promise_recorded = self.promise;
        self.durable(setup);
        for slot in self.slots.values_mut() {
            slot.acknowledged = slot.accepted.as_ref().map(|(ballot, _)| *ballot);
        }
    }
}
