//! A record that is not one of a store.

use std::fmt;

use esker_log::Seq;

/// A record that has a valid checksum, but whose content is not that of a record of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorruptedRecord {
    /// The record's sequence number.
    pub seq: Seq,
    /// The rule of the format that it breaks.
    pub what: &'static str,
}

impl fmt::Display for CorruptedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, what } = self;
        write!(f, "record {seq} is not a valid record of a store: {what}")
    }
}

impl std::error::Error for CorruptedRecord {}
