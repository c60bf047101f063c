//! The messages between proposers and acceptors.

use esker::consensus::{Ballot, Slot};

/// The entry of a slot, as an acceptor reports it.
#[derive(Debug, Clone)]
pub struct AcceptedEntry {
    pub slot: Slot,
    pub ballot: Ballot,
    pub value: Vec<u8>,
    pub committed: bool,
}

/// A request to an acceptor.
#[derive(Debug, Clone)]
pub enum Request {
    /// Phase 1, for every slot from the first that the proposer lacks.
    Prepare { ballot: Ballot, from: Slot },
    /// Phase 2.
    Accept { ballot: Ballot, slot: Slot, value: Vec<u8> },
    /// Phase 3.
    Commit { ballot: Ballot, slot: Slot },
    /// A value that is known to be chosen.
    Learn { ballot: Ballot, slot: Slot, value: Vec<u8> },
    /// Slots up to this one are in a snapshot that comes with the message.
    Install { floor: Slot },
    /// Send me what is committed from here on.
    Fetch { from: Slot, asks: usize },
}

/// The answer of an acceptor.
#[derive(Debug, Clone)]
pub enum Answer {
    Promise {
        ballot: Ballot,
        floor: Option<Slot>,
        entries: Vec<AcceptedEntry>,
    },
    Accepted {
        ballot: Ballot,
        slot: Slot,
    },
    /// A higher ballot came first.
    Stale {
        promised: Ballot,
    },
}

/// A message of a group on its way.
#[derive(Debug, Clone)]
pub struct Message {
    pub group: usize,
    pub from: usize,
    pub to: usize,
    pub body: Body,
}

/// The content of a message.
#[derive(Debug, Clone)]
pub enum Body {
    /// A message to an acceptor.
    Request(Request),
    /// A message to a proposer of the group.
    Answer(Answer),
}
