//! Nodes whose logs went back: they lack entries that they had acknowledged.
//!
//! That is not the work of a crash. An older copy of the data was put in the place of the newer, or
//! a disk lost what it had synced. A leader finds out when a node refuses what follows an entry
//! that the node had acknowledged to this leader; then it sends the entries again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What a node has acknowledged to the leader of a term, over any link. Clones are handles of one.
///
/// No other node ever has its number, so this is of one log.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Arc<Mutex<Acknowledged>>);

/// The entries up to, and not including, an index.
#[derive(Debug, Clone, Copy, Default)]
struct Acknowledged {
    term: u64,
    end: u64,
}

impl Held {
    /// The index after those that it has acknowledged in this term; 0 if none is known.
    pub(super) fn end(&self, term: u64) -> u64 {
        let known = *self.0.lock();
        if known.term == term { known.end } else { 0 }
    }

    /// It has the entries before this index.
    pub(super) fn before(&self, term: u64, end: u64) {
        let mut known = self.0.lock();
        if known.term < term {
            *known = Acknowledged { term, end };
        } else if known.term == term {
            known.end = known.end.max(end);
        }
    }

    /// It does not have them any more.
    pub(super) fn forget(&self) {
        *self.0.lock() = Acknowledged::default();
    }
}

/// For each node whose log went back while this node led: the term, and the last index that the
/// node had acknowledged. Clones are handles of one table, which has a row for each node that was
/// a member.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reverted(Arc<Mutex<HashMap<u64, (u64, u64)>>>);

impl Reverted {
    /// The node lacks entries up to this one, which it had acknowledged.
    pub(super) fn note(&self, node: u64, term: u64, acknowledged: u64) {
        tracing::error!(
            node,
            term,
            acknowledged,
            "the log of a node went back: it lacks entries that it had acknowledged"
        );
        self.0.lock().insert(node, (term, acknowledged));
    }

    /// Those of this term.
    pub(crate) fn in_term(&self, term: u64) -> Vec<(u64, u64)> {
        let known = self.0.lock();
        let of_term = known.iter().filter(|(_, (noted, _))| *noted == term);
        of_term.map(|(node, (_, acknowledged))| (*node, *acknowledged)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_counts_in_its_term() {
        let held = Held::default();
        assert_eq!(held.end(1), 0);
        held.before(2, 10);
        held.before(2, 7);
        // An answer to a leader that this node is no more.
        held.before(1, 90);
        assert_eq!((held.end(2), held.end(1), held.end(3)), (10, 0, 0));
        held.before(3, 4);
        assert_eq!((held.end(3), held.end(2)), (4, 0));
        held.forget();
        assert_eq!(held.end(3), 0);
    }

    #[test]
    fn nodes_are_known_in_the_term_that_noticed() {
        let reverted = Reverted::default();
        reverted.note(3, 7, 100);
        reverted.note(3, 7, 120);
        assert_eq!((reverted.in_term(7), reverted.in_term(8)), (vec![(3, 120)], vec![]));
    }
}
