//! The protocol's decisions: pure functions of a promise, a slot and a ballot. No I/O, no locks.
//!
//! Live operations decide here and append the decision. Recovery replays the records in the same
//! order and decides nothing again.

use esker_disk::planted::{Bug, is_planted};

use crate::base::ballot::Ballot;
use crate::index::page::State;

/// The state of a slot at the moment of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotState {
    pub(crate) state: State,
    /// The ballot of its entry.
    pub(crate) ballot: Ballot,
}

/// The decision about an accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcceptDecision {
    /// Append it, and raise the promise to its ballot.
    Store,
    /// The slot has an entry already. If its value is the same, acknowledge; if not, refuse.
    Compare,
    /// A higher ballot was promised or accepted before.
    Stale(Ballot),
}

pub(crate) fn accept(promise: Ballot, current: SlotState, ballot: Ballot) -> AcceptDecision {
    match current.state {
        // A committed slot never changes, whatever the ballot.
        State::Committed => AcceptDecision::Compare,
        _ if ballot < promise && !is_planted(Bug::LowerBallotAccepted) => {
            AcceptDecision::Stale(promise)
        }
        // `current.ballot` never exceeds the promise; this guards a log that forgot a promise.
        State::Accepted if ballot < current.ballot => AcceptDecision::Stale(current.ballot),
        State::Accepted if ballot == current.ballot => AcceptDecision::Compare,
        _ => AcceptDecision::Store,
    }
}

/// The decision about a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitDecision {
    /// Append the marker.
    Mark,
    /// The slot is committed already.
    Done,
    /// The slot is accepted under this ballot, not under the one named.
    Mismatch(Ballot),
    /// The slot is empty.
    Missing,
}

/// Decides a commit; `None` commits the accepted entry under any ballot.
pub(crate) fn commit(current: SlotState, ballot: Option<Ballot>) -> CommitDecision {
    match (current.state, ballot) {
        (State::Empty, _) => CommitDecision::Missing,
        (State::Committed, _) => CommitDecision::Done,
        (State::Accepted, Some(ballot)) if ballot != current.ballot => {
            CommitDecision::Mismatch(current.ballot)
        }
        (State::Accepted, _) => CommitDecision::Mark,
    }
}

/// Whether a promise is granted: to the same ballot again, and to every higher one.
pub(crate) fn promise(promised: Ballot, ballot: Ballot) -> bool {
    ballot >= promised
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: Ballot = Ballot { number: 1, node: 1 };
    const MID: Ballot = Ballot { number: 2, node: 1 };
    const HIGH: Ballot = Ballot { number: 2, node: 2 };

    fn slot(state: State, ballot: Ballot) -> SlotState {
        SlotState { state, ballot }
    }

    #[test]
    fn a_lower_ballot_is_refused_and_a_higher_one_replaces() {
        let empty = slot(State::Empty, Ballot::ZERO);
        assert_eq!(accept(MID, empty, LOW), AcceptDecision::Stale(MID));
        assert_eq!(accept(MID, empty, MID), AcceptDecision::Store);
        assert_eq!(accept(LOW, slot(State::Accepted, MID), LOW), AcceptDecision::Stale(MID));
        assert_eq!(accept(MID, slot(State::Accepted, MID), HIGH), AcceptDecision::Store);
        assert_eq!(accept(MID, slot(State::Accepted, MID), MID), AcceptDecision::Compare);
    }

    #[test]
    fn a_committed_slot_never_changes() {
        for ballot in [LOW, MID, HIGH] {
            assert_eq!(accept(MID, slot(State::Committed, MID), ballot), AcceptDecision::Compare);
        }
    }

    #[test]
    fn a_commit_commits_what_it_names() {
        assert_eq!(commit(slot(State::Accepted, MID), Some(MID)), CommitDecision::Mark);
        assert_eq!(commit(slot(State::Accepted, MID), Some(HIGH)), CommitDecision::Mismatch(MID));
        assert_eq!(commit(slot(State::Accepted, MID), None), CommitDecision::Mark);
        assert_eq!(commit(slot(State::Committed, MID), Some(HIGH)), CommitDecision::Done);
        assert_eq!(commit(slot(State::Empty, MID), Some(MID)), CommitDecision::Missing);
    }

    #[test]
    fn promises_only_rise() {
        assert!(promise(MID, MID) && promise(MID, HIGH) && !promise(MID, LOW));
    }
}
