//! Which writes share a sync.
//!
//! A caller that does not wait fills buffers faster than the device takes them. Each written with
//! O_DSYNC, the device completes one by one. So where full buffers queue up and no caller waits for
//! them, they are written without it, as a *group*, and one sync makes the group durable.
//!
//! A group ends when it has half of the staging memory, so that appends go on beside its sync; at
//! the end of a segment; and once a caller waits for one of its units, or no full buffer follows.
//! While a group has no sync, each write joins it: one with O_DSYNC says nothing of those before
//! it. The sync starts when all writes of the group are complete. Later writes may be in flight
//! beside it, and they count only after it, as do all jobs.

use std::sync::Arc;

use super::{Core, Unit};
use crate::base::log_end::Mark;
use crate::base::options::{Options, Policy};

impl Core {
    /// The most bytes of a group; 0 where there are none. With fewer than four buffers no second
    /// one fits.
    pub(super) fn group_limit(options: &Options, dsync: bool) -> u64 {
        let groups = dsync && options.policy == Policy::Always;
        if groups { u64::from(options.buffers / 2) * u64::from(options.buffer_size) } else { 0 }
    }

    /// The end of what was handed out to be written.
    pub(super) fn handed_out(&self) -> Mark {
        self.units.in_flight().back().map_or(self.marks.written(), |commit| commit.mark)
    }

    /// Whether the next write is one of a group: it joins the writes that have no sync, or is the
    /// first of several.
    pub(super) fn next_write_is_grouped(&self) -> bool {
        let group = self.limits.group;
        let Some(next) = self.units.first_sealed().filter(|_| group > 0) else { return false };
        let (from, end) = (self.marks.covered(), self.handed_out());
        let is_open = from.unit < end.unit;
        let room = from.position + group;
        let joins = |unit: &Unit| self.is_whole(unit) && end_of(unit) <= room;
        if self.requests.awaited() > from.unit || !joins(next) {
            return false;
        }
        if is_open {
            return next.buffer.segment == end.segment;
        }
        let second = self.units.sealed().find(|unit| !Arc::ptr_eq(&unit.buffer, &next.buffer));
        second.is_some_and(|unit| unit.buffer.segment == next.buffer.segment && joins(unit))
    }

    /// Whether no further unit can join the buffer of this one.
    pub(super) fn is_whole(&self, unit: &Unit) -> bool {
        self.units.open().is_none_or(|open| !Arc::ptr_eq(&open.buffer, &unit.buffer))
    }
}

/// The last position that a write of this unit's buffer may reach.
fn end_of(unit: &Unit) -> u64 {
    unit.buffer.base + u64::from(unit.buffer.limit)
}
