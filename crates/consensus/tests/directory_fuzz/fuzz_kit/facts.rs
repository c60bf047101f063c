//! The operations on a consensus log, in order, and its state after each prefix of them.

use std::collections::BTreeMap;

use esker_consensus::Ballot;

/// Something that the log was made to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    Promised(Ballot),
    Accepted {
        slot: u64,
        ballot: Ballot,
        value: Vec<u8>,
    },
    Committed {
        slot: u64,
    },
    Learned {
        slot: u64,
        ballot: Ballot,
        value: Vec<u8>,
    },
    /// The first slot kept, and the first that is not known to be decided.
    Raised {
        start: u64,
        next: u64,
    },
    /// Uncommitted slots above are dropped.
    Cut {
        above: u64,
    },
}

/// The content of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotState {
    pub ballot: Ballot,
    pub value: Vec<u8>,
    pub committed: bool,
}

/// The state of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub promise: Ballot,
    pub start: u64,
    /// The first slot that is not decided.
    pub next: u64,
    pub slots: BTreeMap<u64, SlotState>,
}

impl State {
    pub fn learn(&mut self, fact: &Fact) {
        match fact {
            Fact::Promised(ballot) => self.promise = self.promise.max(*ballot),
            Fact::Accepted { slot, ballot, value } => {
                self.promise = self.promise.max(*ballot);
                let (ballot, value) = (*ballot, value.clone());
                self.slots.insert(*slot, SlotState { ballot, value, committed: false });
            }
            Fact::Committed { slot } => {
                if let Some(slot) = self.slots.get_mut(slot) {
                    slot.committed = true;
                }
            }
            Fact::Learned { slot, ballot, value } => {
                let (ballot, value) = (*ballot, value.clone());
                self.slots.insert(*slot, SlotState { ballot, value, committed: true });
            }
            Fact::Raised { start, next } => {
                self.start = self.start.max(*start);
                self.next = self.next.max(*next).max(self.start);
                self.slots = self.slots.split_off(&self.start);
            }
            Fact::Cut { above } => {
                self.slots.retain(|slot, there| slot <= above || there.committed);
            }
        }
        while self.slots.get(&self.next).is_some_and(|slot| slot.committed) {
            self.next += 1;
        }
    }
}

/// Facts, each with the step that made it durable.
#[derive(Debug, Clone, Default)]
pub struct Facts(pub Vec<(usize, Fact)>);

impl Facts {
    /// The state after all of them.
    pub fn state(&self) -> State {
        let mut state = State::default();
        self.0.iter().for_each(|(_, fact)| state.learn(fact));
        state
    }

    /// The states after each prefix that holds every fact of a step below this one.
    pub fn states_from(&self, step: usize) -> Vec<State> {
        let needed = self.0.iter().take_while(|(of, _)| *of < step).count();
        let mut state = State::default();
        let mut states = Vec::new();
        for (n, (_, fact)) in self.0.iter().enumerate() {
            if n >= needed {
                states.push(state.clone());
            }
            state.learn(fact);
        }
        states.push(state);
        states
    }

    /// Whether a value was ever tried in a slot, under this ballot.
    pub fn was_tried(&self, of: u64, under: Ballot, tried: &[u8]) -> bool {
        self.0.iter().any(|(_, fact)| match fact {
            Fact::Accepted { slot, ballot, value } | Fact::Learned { slot, ballot, value } => {
                (*slot, *ballot, &value[..]) == (of, under, tried)
            }
            _ => false,
        })
    }

    /// The value that was chosen in a slot, if one was, dropped since or not.
    pub fn chosen(&self) -> BTreeMap<u64, Vec<u8>> {
        let mut state = State::default();
        let mut chosen = BTreeMap::new();
        for (_, fact) in &self.0 {
            state.learn(fact);
            if let Fact::Committed { slot } | Fact::Learned { slot, .. } = fact
                && let Some(there) = state.slots.get(slot).filter(|there| there.committed)
            {
                chosen.insert(*slot, there.value.clone());
            }
        }
        chosen
    }
}
