//! Points at the end of a log: what is written or durable, and the end that recovery found.

use crate::format::LogId;

/// How far the log is durable, or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    /// The number of the last unit.
    pub(crate) unit: u64,
    /// The position after its last block.
    pub(crate) position: u64,
    /// Its last record.
    pub(crate) seq: u64,
    /// The segment that holds it.
    pub(crate) segment: u64,
}

impl Mark {
    /// Whether this mark is at or before another, in each of its fields.
    pub(crate) fn is_at_most(self, other: Self) -> bool {
        self.unit <= other.unit
            && self.position <= other.position
            && self.seq <= other.seq
            && self.segment <= other.segment
    }
}

/// The end of the log as recovery hands it over at open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogEnd {
    pub(crate) log: LogId,
    pub(crate) segment: u64,
    pub(crate) base: u64,
    pub(crate) offset: u32,
    pub(crate) records: u64,
    pub(crate) last_seq: u64,
}
