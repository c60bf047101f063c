//! Votes as ballots.

use esker_consensus::Ballot;
use openraft::impls::leader_id_std::LeaderId;

use crate::base::type_config::RaftVote;

/// The highest term that has a ballot.
pub(crate) const TERM_MAX: u64 = u64::MAX / 2;

// The ballot of a committed vote of the highest term: 2 * term + 1.
const _: () = assert!(TERM_MAX.checked_mul(2).is_some() && TERM_MAX * 2 < u64::MAX);

/// The ballot of a vote; `None` above [`TERM_MAX`].
pub(crate) fn vote_to_ballot(vote: &RaftVote) -> Option<Ballot> {
    let LeaderId { term, voted_for } = vote.leader_id;
    let number = term.checked_mul(2)?.checked_add(u64::from(vote.committed))?;
    let ballot = Ballot { number, node: voted_for };
    debug_assert!(
        ballot == Ballot::ZERO || ballot_to_vote(ballot) == Some(*vote),
        "a ballot has the vote that it was made from"
    );
    Some(ballot)
}

/// The term of a ballot's vote; 0 for the ballot of a log without a vote.
pub(crate) fn ballot_term(ballot: Ballot) -> u64 {
    ballot.number / 2
}

/// The vote of a ballot; `None` for the ballot of a log without a vote.
pub(crate) fn ballot_to_vote(ballot: Ballot) -> Option<RaftVote> {
    let leader_id = LeaderId { term: ballot_term(ballot), voted_for: ballot.node };
    (ballot > Ballot::ZERO).then_some(RaftVote { leader_id, committed: ballot.number % 2 == 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votes() -> Vec<RaftVote> {
        let terms = [1, 2, 3, 1 << 40, TERM_MAX];
        let leaders = terms.iter().flat_map(|term| [0, 1, 2, u64::MAX].map(|node| (*term, node)));
        let vote = |(term, voted_for)| {
            let leader_id = LeaderId { term, voted_for };
            [false, true].map(|committed| RaftVote { leader_id, committed })
        };
        leaders.flat_map(vote).collect()
    }

    #[test]
    fn every_vote_comes_back() {
        for vote in votes() {
            assert_eq!(vote_to_ballot(&vote).and_then(ballot_to_vote), Some(vote), "{vote}");
            assert_eq!(vote_to_ballot(&vote).map(ballot_term), Some(vote.leader_id.term));
        }
        assert_eq!(ballot_to_vote(Ballot::ZERO), None);
        let leader_id = LeaderId { term: TERM_MAX + 1, voted_for: 1 };
        assert_eq!(vote_to_ballot(&RaftVote { leader_id, committed: false }), None);
    }

    /// openraft compares votes of two nodes in one term as incomparable, or by whether they are
    /// committed.
    #[test]
    fn ballots_are_ordered_as_votes_are() {
        for one in votes() {
            for other in votes() {
                let ballots = vote_to_ballot(&one).partial_cmp(&vote_to_ballot(&other));
                if let Some(order) = PartialOrd::partial_cmp(&one, &other) {
                    assert_eq!(ballots, Some(order), "{one} and {other}");
                }
            }
        }
    }
}
