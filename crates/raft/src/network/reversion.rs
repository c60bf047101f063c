//! Log reversion: a node lacks entries that it had acknowledged.
//!
//! No crash does that. An older copy of the data replaced the newer one, or a disk lost what it had
//! synced. A leader notices when a node refuses the entries after one that the node had
//! acknowledged to this leader; then it sends the entries again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The end of the entries that a node has acknowledged to the leader of a term, over any link.
/// Clones are handles of one.
///
/// No other node ever has the same number, so this is about one log.
#[derive(Debug, Clone, Default)]
pub(super) struct MatchIndex(Arc<Mutex<MatchedPrefix>>);

/// The entries below an index.
#[derive(Debug, Clone, Copy, Default)]
struct MatchedPrefix {
    term: u64,
    end: u64,
}

impl MatchIndex {
    /// The index after the entries that the node has acknowledged in this term; 0 for none.
    pub(super) fn end(&self, term: u64) -> u64 {
        let known = *self.0.lock();
        if known.term == term { known.end } else { 0 }
    }

    /// Records that the node has acknowledged the entries below this index.
    pub(super) fn raise(&self, term: u64, end: u64) {
        let mut known = self.0.lock();
        if known.term < term {
            *known = MatchedPrefix { term, end };
        } else if known.term == term {
            known.end = known.end.max(end);
        }
    }

    /// Forgets the entries: the node does not have them any more.
    pub(super) fn reset(&self) {
        *self.0.lock() = MatchedPrefix::default();
    }
}

/// The nodes whose logs were reverted while this node led: the term, and the last index that the
/// node had acknowledged. Clones are handles of one table, which has at most one row for each node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reversions(Arc<Mutex<HashMap<u64, (u64, u64)>>>);

impl Reversions {
    /// Records that a node lacks entries up to this one, which it had acknowledged.
    pub(super) fn record(&self, node: u64, term: u64, acknowledged: u64) {
        tracing::error!(
            node,
            term,
            acknowledged,
            "the log of a node was reverted: it lacks entries that it had acknowledged"
        );
        self.0.lock().insert(node, (term, acknowledged));
    }

    /// The reversions of this term: node, and last acknowledged index.
    pub(crate) fn in_term(&self, term: u64) -> Vec<(u64, u64)> {
        let known = self.0.lock();
        let of_term = known.iter().filter(|(_, (reverted_in, _))| *reverted_in == term);
        of_term.map(|(node, (_, acknowledged))| (*node, *acknowledged)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_counts_in_its_term() {
        let matched = MatchIndex::default();
        assert_eq!(matched.end(1), 0);
        matched.raise(2, 10);
        matched.raise(2, 7);
        // An answer to a leader that this node is no more.
        matched.raise(1, 90);
        assert_eq!((matched.end(2), matched.end(1), matched.end(3)), (10, 0, 0));
        matched.raise(3, 4);
        assert_eq!((matched.end(3), matched.end(2)), (4, 0));
        matched.reset();
        assert_eq!(matched.end(3), 0);
    }

    #[test]
    fn reversions_are_known_in_their_term() {
        let reversions = Reversions::default();
        reversions.record(3, 7, 100);
        reversions.record(3, 7, 120);
        assert_eq!((reversions.in_term(7), reversions.in_term(8)), (vec![(3, 120)], vec![]));
    }
}
