//! The report of a recovery.

use std::path::PathBuf;

use crate::base::options::Retention;
use crate::base::position::Seq;

/// The result of opening a log for writing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// How the previous session ended.
    pub prior_shutdown: PriorShutdown,
    /// The number of this opening for writing, from 1. No two openings have the same number.
    pub session: u64,
    /// The retention of the last session that had one; nothing if a session without one
    /// has appended since and was closed. A session that only truncates does not change it.
    pub prior_retention: Retention,
    /// The last record.
    pub last: Seq,
    /// The bytes cut off after the last record, if any.
    pub truncated_tail: Option<TruncatedTail>,
    /// The number of records above the highest durable lower bound. They were copied and made
    /// durable.
    pub copied: u64,
}

/// How the previous session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PriorShutdown {
    /// The log was created: it had no segment yet.
    New,
    /// Closed cleanly.
    Clean,
    /// Not closed: the process or the machine stopped.
    Unclean,
}

/// Bytes that recovery cut off because they were never durable, or do not belong to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TruncatedTail {
    /// The segment file.
    pub file: PathBuf,
    /// The offset of the first byte that was cut.
    pub offset: u64,
    /// The number of bytes cut in units or foreign data, as far as they differ from padding.
    pub bytes: u64,
    /// Why the first cut unit is not valid.
    pub what: String,
}

/// How much of a log was read, from [`verify_with`](crate::verify_with) and
/// [`repair_with`](crate::repair_with).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReadProgress {
    /// Bytes read, or known to hold nothing. Starts again when the log is read again.
    pub read: u64,
    /// The bytes of the live segment files.
    pub total: u64,
}
