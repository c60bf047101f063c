//! What recovery reports.

use std::path::PathBuf;

use crate::base::position::Seq;

/// What opening a log found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// How the log was left.
    pub prior_shutdown: PriorShutdown,
    /// The number of this opening for writing, from 1. No two openings have the same.
    pub session: u64,
    /// The last record.
    pub last: Seq,
    /// What was cut off behind it, if anything.
    pub truncated_tail: Option<TruncatedTail>,
    /// The records above the highest claim, which were copied and made durable.
    pub copied: u64,
}

/// How a log was left by whoever had it open before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PriorShutdown {
    /// There was none; it was created.
    New,
    /// Closed cleanly.
    Clean,
    /// Not closed: the process or the machine stopped.
    Unclean,
}

/// Bytes that did not count and were cut off: never durable, or not the log's.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TruncatedTail {
    /// The segment file.
    pub file: PathBuf,
    /// The byte in it from which on nothing counted.
    pub offset: u64,
    /// How many bytes of units or strangers lay behind, as far as they could be told from padding.
    pub bytes: u64,
    /// What was wrong with the first of them.
    pub what: String,
}
