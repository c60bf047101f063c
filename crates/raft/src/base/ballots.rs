//! Votes as ballots.

use esker_consensus::Ballot;
use openraft::impls::leader_id_std::LeaderId;

use crate::base::config::VoteOf;

/// The highest term that has a ballot.
pub(crate) const TERM_MAX: u64 = u64::MAX / 2;

/// The ballot of a vote; `None` above [`TERM_MAX`].
pub(crate) fn ballot_of(vote: &VoteOf) -> Option<Ballot> {
    let LeaderId { term, voted_for } = vote.leader_id;
    let number = term.checked_mul(2)?.checked_add(u64::from(vote.committed))?;
    Some(Ballot { number, node: voted_for })
}

/// The term of a ballot's vote; 0 for that of a log without one.
pub(crate) fn term_of(ballot: Ballot) -> u64 {
    ballot.number / 2
}

/// The vote of a ballot; `None` for that of a log without a vote.
pub(crate) fn vote_of(ballot: Ballot) -> Option<VoteOf> {
    let leader_id = LeaderId { term: term_of(ballot), voted_for: ballot.node };
    (ballot > Ballot::ZERO).then_some(VoteOf { leader_id, committed: ballot.number % 2 == 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votes() -> Vec<VoteOf> {
        let terms = [1, 2, 3, 1 << 40, TERM_MAX];
        let leaders = terms.iter().flat_map(|term| [0, 1, 2, u64::MAX].map(|node| (*term, node)));
        let vote = |(term, voted_for)| {
            let leader_id = LeaderId { term, voted_for };
            [false, true].map(|committed| VoteOf { leader_id, committed })
        };
        leaders.flat_map(vote).collect()
    }

    #[test]
    fn every_vote_comes_back() {
        for vote in votes() {
            assert_eq!(ballot_of(&vote).and_then(vote_of), Some(vote), "{vote}");
            assert_eq!(ballot_of(&vote).map(term_of), Some(vote.leader_id.term));
        }
        assert_eq!(vote_of(Ballot::ZERO), None);
        let leader_id = LeaderId { term: TERM_MAX + 1, voted_for: 1 };
        assert_eq!(ballot_of(&VoteOf { leader_id, committed: false }), None);
    }

    /// openraft compares votes of two nodes in one term as incomparable, or by who is committed.
    #[test]
    fn ballots_are_ordered_as_votes_are() {
        for one in votes() {
            for other in votes() {
                let ballots = ballot_of(&one).partial_cmp(&ballot_of(&other));
                if let Some(order) = PartialOrd::partial_cmp(&one, &other) {
                    assert_eq!(ballots, Some(order), "{one} and {other}");
                }
            }
        }
    }
}
