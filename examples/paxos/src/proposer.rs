//! A proposer: phase 1 for all slots at once, then phase 2 for each.

use std::collections::{BTreeMap, BTreeSet};

use esker::consensus::{Ballot, Slot};

use crate::acceptor::above;
use crate::message::{AcceptedEntry, Answer, Request};

/// New values that a proposer tries in one reign.
const NEW_VALUES: u64 = 3;

/// How many acceptors make a quorum. Any two quorums of different phases share one.
#[derive(Debug, Clone, Copy)]
pub struct Quorums {
    pub acceptors: usize,
    pub first: usize,
    pub second: usize,
}

/// A proposer. What it knows may be lost at any time, and nothing depends on it.
#[derive(Debug)]
pub struct Proposer {
    group: usize,
    number: u64,
    quorums: Quorums,
    ballot: Ballot,
    /// The highest ballot that it heard of.
    heard: Ballot,
    from: Slot,
    promises: BTreeMap<usize, (Option<Slot>, Vec<AcceptedEntry>)>,
    reigns: bool,
    proposals: BTreeMap<Slot, Vec<u8>>,
    votes: BTreeMap<Slot, BTreeSet<usize>>,
    values: u64,
}

/// The next act of a proposer.
#[derive(Debug)]
pub enum Act {
    /// A message to all acceptors.
    Sends(Request),
    /// A quorum accepted it.
    Chose { slot: Slot, value: Vec<u8> },
}

impl Proposer {
    pub fn new(group: usize, number: u64, quorums: Quorums) -> Self {
        Self {
            group,
            number,
            quorums,
            ballot: Ballot::ZERO,
            heard: Ballot::ZERO,
            from: Slot::ZERO,
            promises: BTreeMap::new(),
            reigns: false,
            proposals: BTreeMap::new(),
            votes: BTreeMap::new(),
            values: 0,
        }
    }

    /// Asks for promises under a ballot above all that it heard of. `from` is the first slot that
    /// it lacks.
    pub fn campaign(&mut self, from: Slot) -> Act {
        self.ballot = above(self.heard.max(self.ballot), self.number);
        self.from = from;
        self.promises.clear();
        self.proposals.clear();
        self.votes.clear();
        self.reigns = false;
        Act::Sends(Request::Prepare { ballot: self.ballot, from })
    }

    pub fn hear(&mut self, acceptor: usize, answer: &Answer) -> Vec<Act> {
        match answer {
            Answer::Stale { promised } => {
                self.heard = self.heard.max(*promised);
                Vec::new()
            }
            Answer::Promise { ballot, floor, entries } if *ballot == self.ballot => {
                self.promises.insert(acceptor, (*floor, entries.clone()));
                if self.reigns || self.promises.len() < self.quorums.first {
                    return Vec::new();
                }
                self.reigns = true;
                self.propose()
            }
            Answer::Accepted { ballot, slot } if *ballot == self.ballot => {
                let votes = self.votes.entry(*slot).or_default();
                votes.insert(acceptor);
                if votes.len() != self.quorums.second {
                    return Vec::new();
                }
                let value = self.proposals.get(slot).cloned().unwrap_or_default();
                let ballot = *ballot;
                let slot = *slot;
                vec![Act::Chose { slot, value }, Act::Sends(Request::Commit { ballot, slot })]
            }
            // Of another reign.
            _ => Vec::new(),
        }
    }

    /// A quorum promised: every slot gets what the highest ballot left there, or a new value.
    fn propose(&mut self) -> Vec<Act> {
        let floors = self.promises.values().filter_map(|(floor, _)| *floor);
        // Below a floor everything is decided, and in a snapshot.
        let first = floors.map(Slot::next).max().unwrap_or_default().max(self.from);
        let mut highest: BTreeMap<Slot, AcceptedEntry> = BTreeMap::new();
        for entry in self.promises.values().flat_map(|(_, entries)| entries) {
            let key = |entry: &AcceptedEntry| (entry.committed, entry.ballot);
            if entry.slot >= first
                && highest.get(&entry.slot).is_none_or(|known| key(known) < key(entry))
            {
                highest.insert(entry.slot, entry.clone());
            }
        }
        let end = highest.last_key_value().map_or(first, |(slot, _)| slot.next());
        let mut acts = Vec::new();
        for slot in (first.0..end.0 + NEW_VALUES).map(Slot) {
            let value = match highest.remove(&slot) {
                Some(entry) => entry.value,
                None => self.new_value(),
            };
            self.proposals.insert(slot, value.clone());
            acts.push(Act::Sends(Request::Accept { ballot: self.ballot, slot, value }));
        }
        acts
    }

    fn new_value(&mut self) -> Vec<u8> {
        self.values += 1;
        let Self { group, number, ballot, values, .. } = self;
        format!("value {values} of proposer {number} of group {group} under {ballot}").into_bytes()
    }
}
