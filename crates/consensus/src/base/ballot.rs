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

    /// A ballot.
    pub const fn new(number: u64, node: u64) -> Self {
        Self { number, node }
    }
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
        assert!(Ballot::new(1, 9) < Ballot::new(2, 0));
        assert!(Ballot::new(2, 0) < Ballot::new(2, 1));
        assert_eq!(Ballot::new(2, 1), Ballot::new(2, 1));
    }
}
