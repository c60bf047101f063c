//! Timestamps that were asked for together.

use crate::timestamp::Timestamp;

/// Timestamps of one epoch, with consecutive indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first of them.
    pub first: Timestamp,
    /// How many there are: at least 1.
    pub count: u32,
}

impl Range {
    /// The last of them; `None` if there is none, or its index is above the highest one.
    pub fn last(self) -> Option<Timestamp> {
        let more = u64::from(self.count.checked_sub(1)?);
        Some(Timestamp { index: self.first.index.checked_add(more)?, ..self.first })
    }

    /// All of them, in order.
    pub fn timestamps(self) -> impl Iterator<Item = Timestamp> {
        let Timestamp { epoch, index } = self.first;
        (0..u64::from(self.count)).map(move |n| Timestamp { epoch, index: index + n })
    }
}
