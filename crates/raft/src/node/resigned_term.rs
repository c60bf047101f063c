//! The term in which a node gives its leadership up.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::base::ballots::TERM_MAX;

/// The last term in which a node gave its leadership up, if there is one. In that term the node
/// takes no proposals, and proves no leadership.
#[derive(Debug, Default)]
pub(crate) struct ResignedTerm {
    /// One above the term; 0 for none.
    end: AtomicU64,
}

/// A resignation that is taken back when this is dropped, unless it was made final.
#[derive(Debug)]
#[must_use = "the resignation is taken back when this is dropped"]
pub(crate) struct Resignation<'a> {
    resigned: &'a ResignedTerm,
    before: u64,
    is_final: bool,
}

impl ResignedTerm {
    /// Returns whether the node gave its leadership up in this term, or in a later one.
    pub(crate) fn covers(&self, term: u64) -> bool {
        term < self.end.load(SeqCst)
    }

    /// Begins a resignation. One at a time is made.
    pub(crate) fn begin(&self, term: u64) -> Resignation<'_> {
        debug_assert!(term <= TERM_MAX, "a term has a ballot");
        let before = self.end.swap(term.saturating_add(1), SeqCst);
        debug_assert!(before <= term.saturating_add(1), "the term of a leader rises");
        Resignation { resigned: self, before, is_final: false }
    }
}

impl Resignation<'_> {
    /// Keeps the resignation for the rest of the term: the target was asked to lead.
    pub(crate) fn make_final(&mut self) {
        self.is_final = true;
    }
}

impl Drop for Resignation<'_> {
    fn drop(&mut self) {
        if !self.is_final {
            self.resigned.end.store(self.before, SeqCst);
        }
    }
}
