//! The two ways to address a record in a log.

use std::fmt;

/// The sequence number of a record, from 1 to [`Seq::MAX`]; 0 means "before any".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Seq(pub u64);

/// A byte position in the log, over all its segments. It grows with every record. Recovery after a
/// crash may move the last records, which changes their positions but not their sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Position(pub u64);

/// A range of records: those above `from`, up to and including `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeqRange {
    /// The number before the first record.
    pub from: Seq,
    /// The number of the last record.
    pub to: Seq,
}

impl fmt::Display for SeqRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the records above {} up to {}", self.from, self.to)
    }
}

impl Seq {
    /// The number before any record.
    pub const ZERO: Seq = Seq(0);
    /// The highest number that a record can have, 2^64 - 2: each record has a number after it.
    pub const MAX: Seq = Seq(u64::MAX - 1);
}

impl Seq {
    /// Returns the number after this one; saturates.
    pub fn next(self) -> Seq {
        Seq(self.0.saturating_add(1))
    }
}

impl From<Seq> for u64 {
    fn from(seq: Seq) -> Self {
        seq.0
    }
}

impl From<u64> for Seq {
    fn from(seq: u64) -> Self {
        Seq(seq)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The place of a record in the log, as its append returned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordPlace {
    /// The record's number.
    pub seq: Seq,
    /// The record's position.
    pub position: Position,
    /// The length of its payload in bytes.
    pub len: u32,
}
