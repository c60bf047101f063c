//! What recovery reports.

use std::path::PathBuf;

use crate::base::position::Seq;

/// What opening a log found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// How the log was left.
    pub found: Found,
    /// The number of this opening for writing, from 1. No two openings have the same.
    pub session: u64,
    /// The last record.
    pub last: Seq,
    /// What was cut off behind it, if anything.
    pub cut: Option<Cut>,
    /// The records above the highest claim, which were copied and made durable.
    pub copied: u64,
}

/// How a log was left by whoever had it open before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// There was none; it was created.
    Nothing,
    /// Closed cleanly.
    Closed,
    /// Not closed: the process or the machine stopped.
    Abandoned,
}

/// Bytes that did not count and were cut off: never durable, or not the log's.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut {
    /// The segment file.
    pub file: PathBuf,
    /// The byte in it from which on nothing counted.
    pub offset: u64,
    /// How many bytes of units or strangers lay behind, as far as they could be told from padding.
    pub bytes: u64,
    /// What was wrong with the first of them.
    pub what: String,
}
