//! The protocol's decisions: pure functions of a promise, a slot and a ballot. No I/O, no locks.
//!
//! Live operations decide here and append the decision. Recovery replays the records in the same
//! order and decides nothing again.

use esker_disk::planted::{Bug, is_planted};

use crate::base::ballot::Ballot;
use crate::index::page::State;

/// The state of a slot at the moment of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) state: State,
    /// The ballot of its entry.
    pub(crate) ballot: Ballot,
}

/// The decision about an accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accept {
    /// Append it, and raise the promise to its ballot.
    Store,
    /// The slot has an entry already. If its value is the same, acknowledge; if not, refuse.
    Compare,
    /// A higher ballot was promised or accepted before.
    Stale(Ballot),
}

pub(crate) fn accept(promise: Ballot, known: Known, ballot: Ballot) -> Accept {
    match known.state {
        // A committed slot never changes, whatever the ballot.
        State::Committed => Accept::Compare,
        _ if ballot < promise && !is_planted(Bug::LowerBallotAccepted) => Accept::Stale(promise),
        // `known.ballot` never exceeds the promise; this guards a log that forgot a promise.
        State::Accepted if ballot < known.ballot => Accept::Stale(known.ballot),
        State::Accepted if ballot == known.ballot => Accept::Compare,
        _ => Accept::Store,
    }
}

/// The decision about a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
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
pub(crate) fn commit(known: Known, ballot: Option<Ballot>) -> Commit {
    match (known.state, ballot) {
        (State::Empty, _) => Commit::Missing,
        (State::Committed, _) => Commit::Done,
        (State::Accepted, Some(ballot)) if ballot != known.ballot => Commit::Mismatch(known.ballot),
        (State::Accepted, _) => Commit::Mark,
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

    fn known(state: State, ballot: Ballot) -> Known {
        Known { state, ballot }
    }

    #[test]
    fn a_lower_ballot_is_refused_and_a_higher_one_replaces() {
        let empty = known(State::Empty, Ballot::ZERO);
        assert_eq!(accept(MID, empty, LOW), Accept::Stale(MID));
        assert_eq!(accept(MID, empty, MID), Accept::Store);
        assert_eq!(accept(LOW, known(State::Accepted, MID), LOW), Accept::Stale(MID));
        assert_eq!(accept(MID, known(State::Accepted, MID), HIGH), Accept::Store);
        assert_eq!(accept(MID, known(State::Accepted, MID), MID), Accept::Compare);
    }

    #[test]
    fn a_committed_slot_never_changes() {
        for ballot in [LOW, MID, HIGH] {
            assert_eq!(accept(MID, known(State::Committed, MID), ballot), Accept::Compare);
        }
    }

    #[test]
    fn a_commit_commits_what_it_names() {
        assert_eq!(commit(known(State::Accepted, MID), Some(MID)), Commit::Mark);
        assert_eq!(commit(known(State::Accepted, MID), Some(HIGH)), Commit::Mismatch(MID));
        assert_eq!(commit(known(State::Accepted, MID), None), Commit::Mark);
        assert_eq!(commit(known(State::Committed, MID), Some(HIGH)), Commit::Done);
        assert_eq!(commit(known(State::Empty, MID), Some(MID)), Commit::Missing);
    }

    #[test]
    fn promises_only_rise() {
        assert!(promise(MID, MID) && promise(MID, HIGH) && !promise(MID, LOW));
    }
}
