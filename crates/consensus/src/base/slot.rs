//! Slots, and the pages that hold them.
//!
//! Public signatures have [`Slot`]. Below them a slot is a `u64`, with which the index computes.

use std::fmt;

/// The number of a slot. The first slot of a log is 0.
///
/// Slots are dense: a log spans 2^32 of them above its floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Slot(pub u64);

impl Slot {
    /// The first slot.
    pub const ZERO: Slot = Slot(0);

    /// The next slot. `Slot(u64::MAX)`, which no log can hold, has none and is returned unchanged.
    #[must_use]
    pub const fn next(self) -> Slot {
        Slot(self.0.saturating_add(1))
    }
}

impl From<u64> for Slot {
    fn from(slot: u64) -> Self {
        Slot(slot)
    }
}

impl From<Slot> for u64 {
    fn from(slot: Slot) -> Self {
        slot.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The slots that a snapshot covers, for [`install`](crate::Snapshots::install).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotBounds {
    /// Slots up to and including this one are dropped.
    pub floor: Slot,
    /// Slots up to and including this one count as decided, whether or not the log has their
    /// values. Not below `floor`.
    pub frontier: Slot,
}

/// Slots in a page.
pub(crate) const SLOTS_PER_PAGE: usize = 4096;

/// The first slot of a page.
pub(crate) const fn first_slot_of(number: u64) -> u64 {
    number * SLOTS_PER_PAGE as u64
}

/// The number of the page that holds a slot.
pub(crate) fn page_of(slot: u64) -> u64 {
    slot / SLOTS_PER_PAGE as u64
}
