//! The invariants of the core.
//!
//! Debug builds check them after every transition, so every test does. A transition checks what it
//! needs itself in every build: where that does not hold, the core accepts and writes nothing more.

use super::{BrokenInvariant, Core};
use crate::base::error::Terminal;
use crate::base::options::Policy;

impl Core {
    /// Enters the terminal state because this does not hold. Under the lock that found it, so that
    /// nothing of what contradicts itself is written.
    #[cold]
    pub(super) fn broken(&mut self, invariant: &'static str) -> BrokenInvariant {
        self.set_terminal(Terminal::Broken { invariant });
        BrokenInvariant(invariant)
    }

    /// Panics where an invariant is broken. Does nothing in release builds.
    #[inline]
    pub(super) fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            self.check_marks();
            self.check_order();
            let sealed = self.units.sealed().next_back().map_or(0, |unit| unit.number);
            self.requests.check(self.last_unit(), sealed);
        }
    }

    fn check_marks(&self) {
        let handed_out = self.handed_out();
        self.marks.check(handed_out, self.units.appends());
        assert!(
            self.policy == Policy::OsBuffered
                || handed_out.position - self.marks.covered().position <= self.limits.group,
            "more is written without a sync than a group may have"
        );
        assert!(
            self.marks.written().unit <= self.last_unit(),
            "a unit is written that was not begun"
        );
    }

    /// Units are in flight, sealed and open in this order, and their ranges are disjoint.
    fn check_order(&self) {
        let mut end = self.marks.written();
        for commit in self.units.in_flight() {
            assert!(end.is_at_most(commit.mark), "commits in flight are out of order");
            end = commit.mark;
        }
        let mut position = end.position;
        for unit in self.units.sealed() {
            assert_eq!(unit.number, end.unit + 1, "a sealed unit was skipped");
            let start = unit.buffer.base + u64::from(unit.range.start);
            assert!(position <= start, "the ranges of two units overlap");
            end = unit.mark();
            position = end.position;
        }
        if let Some(open) = self.units.open() {
            assert_eq!(open.number, end.unit + 1, "the open unit does not come last");
            let start = open.buffer.base + u64::from(open.start);
            assert!(position <= start, "the ranges of two units overlap");
        }
    }
}
