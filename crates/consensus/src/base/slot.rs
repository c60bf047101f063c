//! Slots, and the pages that hold them.

/// Slots in a page.
pub(crate) const SLOTS: usize = 4096;

/// The number of the page that holds a slot.
pub(crate) fn number_of(slot: u64) -> u64 {
    slot / SLOTS as u64
}
