//! Counters of an open log, since it was opened.

use crate::base::position::Seq;

/// The work of this process on a log since it opened it, and what is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// Commits: writes of one commit unit, or of several that waited.
    pub commits: u64,
    /// Syncs, writes through O_DSYNC included.
    pub syncs: u64,
    /// Bytes of commit units, headers and padding included.
    pub bytes: u64,
    /// Records written, up to the first that is not.
    pub records: u64,
    /// Records accepted.
    pub appended: u64,
    /// Bytes of the payloads of these.
    pub payload_bytes: u64,
    /// The number of the last accepted record.
    pub accepted: Seq,
    /// Records accepted but not yet durable.
    pub pending: u64,
    /// Commits in flight: their write, or their sync, has not ended.
    pub in_flight: usize,
    /// Waiting callers and streams.
    pub waiting: usize,
    /// Callers that wait until a record is durable: threads, pending tasks, callbacks, and threads
    /// that run the commit themselves.
    pub waiting_for_durability: usize,
    /// Callers that wait for room for another record: threads, pending tasks, and threads that run
    /// the commit themselves.
    pub waiting_for_room: usize,
    /// Bytes of memory in staging buffers and the tail cache, including buffers that only a
    /// reader's batch still references.
    pub memory_bytes: u64,
    /// The name of the disk implementation, such as `"std"`.
    pub disk: &'static str,
    /// Whether commits bypass the page cache.
    pub direct: bool,
    /// Whether a commit is one write that is durable by itself (O_DSYNC).
    pub dsync: bool,
}
