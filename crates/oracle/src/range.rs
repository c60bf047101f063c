//! The timestamps of one request.

use crate::timestamp::Timestamp;

/// Timestamps of one epoch, with consecutive indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first of them.
    pub first: Timestamp,
    /// The number of timestamps: at least 1.
    pub count: u32,
}

impl Range {
    /// The last of them; `None` if there is none, or its index is above the highest one.
    pub fn last(self) -> Option<Timestamp> {
        let more = u64::from(self.count.checked_sub(1)?);
        Some(Timestamp { index: self.first.index.checked_add(more)?, ..self.first })
    }

    /// The timestamps, in order.
    pub fn timestamps(self) -> impl Iterator<Item = Timestamp> {
        debug_assert!(self.last().is_some(), "a range has indexes up to the highest");
        let Timestamp { epoch, index } = self.first;
        (0..u64::from(self.count)).map(move |n| Timestamp { epoch, index: index + n })
    }
}
