//! The invariants after every transition of the core. Checked in debug builds, so in every test.

use super::{Core, InFlightCommit};
use crate::base::log_end::Mark;
use crate::base::options::Policy;

impl Core {
    /// Panics where an invariant is broken. Does nothing in release builds.
    #[inline]
    pub(super) fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            self.check_marks();
            self.check_order();
            self.check_requests();
        }
    }

    /// durable <= written <= accepted, in units, positions, sequence numbers, records and appends.
    fn check_marks(&self) {
        assert!(is_at_most(self.durable, self.written), "more is durable than written");
        assert!(self.written.seq <= self.last, "more is written than accepted");
        let (covered, handed_out) = (self.covered, self.handed_out());
        assert!(
            is_at_most(self.durable, covered) && is_at_most(covered, handed_out),
            "the jobs handed out make other units durable than they carry"
        );
        assert!(
            self.policy == Policy::OsBuffered
                || handed_out.position - covered.position <= self.group,
            "more is written without a sync than a group may have"
        );
        assert!(self.written.unit < self.next_unit, "a unit is written that was not begun");
        assert!(
            self.durable_records <= self.written_records
                && self.written_records <= self.accepted_records,
            "record counts of durable, written and accepted are out of order"
        );
        assert!(
            self.durable_appends <= self.written_appends
                && self.written_appends <= self.accepted_appends,
            "append counts of durable, written and accepted are out of order"
        );
        let staged = self.open.as_ref().map_or(0, |open| u64::from(open.appends))
            + self.sealed.iter().map(|unit| u64::from(unit.appends)).sum::<u64>()
            + self.in_flight.iter().map(|commit| u64::from(commit.appends)).sum::<u64>();
        assert_eq!(
            self.accepted_appends - self.written_appends,
            staged,
            "the units that are not written hold other appends than were accepted"
        );
    }

    /// Units are in flight, sealed and open in this order, and their ranges are disjoint.
    fn check_order(&self) {
        let mut end = self.written;
        for InFlightCommit { mark, .. } in &self.in_flight {
            assert!(is_at_most(end, *mark), "commits in flight are out of order");
            end = *mark;
        }
        let mut position = end.position;
        for unit in &self.sealed {
            assert_eq!(unit.number, end.unit + 1, "a sealed unit was skipped");
            let start = unit.buffer.base + u64::from(unit.range.start);
            assert!(position <= start, "the ranges of two units overlap");
            end = unit.mark();
            position = end.position;
        }
        if let Some(open) = &self.open {
            assert_eq!(open.number, end.unit + 1, "the open unit does not come last");
            let start = open.buffer.base + u64::from(open.start);
            assert!(position <= start, "the ranges of two units overlap");
        }
    }

    /// A requested unit was accepted, one to be synced is to be written, and so are full units.
    fn check_requests(&self) {
        assert!(
            self.requested_sync <= self.requested_write,
            "a sync is requested without its write"
        );
        assert!(self.requested_write < self.next_unit, "a unit is requested that was not begun");
        let sealed = self.sealed.back().map_or(0, |unit| unit.number);
        assert!(sealed <= self.requested_write, "a sealed unit is not requested");
    }
}

fn is_at_most(a: Mark, b: Mark) -> bool {
    a.unit <= b.unit && a.position <= b.position && a.seq <= b.seq && a.segment <= b.segment
}
