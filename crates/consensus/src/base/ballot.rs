//! Ballots: the order of proposers.

use std::fmt;

/// A proposer's number. Ballots are ordered by number, and then by node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot {
    /// Counts up; for Raft, the term.
    pub number: u64,
    /// The proposing node, so that two proposers never share a ballot.
    pub node: u64,
}

impl Ballot {
    /// Below every other ballot: nothing was promised yet.
    pub const ZERO: Ballot = Ballot { number: 0, node: 0 };
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::Ballot;

    #[test]
    fn ordered_by_number_and_then_by_node() {
        assert!(Ballot { number: 1, node: 9 } < Ballot { number: 2, node: 0 });
        assert!(Ballot { number: 2, node: 0 } < Ballot { number: 2, node: 1 });
        assert_eq!(Ballot { number: 2, node: 1 }, Ballot { number: 2, node: 1 });
    }
}
