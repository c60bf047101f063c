//! What a store reports about itself.

use std::time::Duration;

use esker_log::reclaim::Reclaimed;

/// Statistics of a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stats {
    /// The number of keys in all keyspaces.
    pub keys: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
    /// Bytes of memory of the value cache.
    pub cache_bytes: u64,
    /// Bytes in the segments of the log.
    pub disk_bytes: u64,
    /// Bytes of the last checkpoint; 0 if there is none.
    pub checkpoint_bytes: u64,
    /// Records that opening applied: those after the last checkpoint, or all.
    pub replayed: u64,
    /// How often writers were held up because cleaning was behind.
    pub throttled: u64,
    /// How long they waited, all together.
    pub throttled_time: Duration,
    /// Open snapshots and scans.
    pub snapshots: usize,
    /// What cleaning did since the store was opened.
    pub reclaimed: Reclaimed,
    /// Statistics of the log.
    pub log: esker_log::LogStats,
}

/// Statistics of a [`ReadOnlyStore`](crate::ReadOnlyStore).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReadOnlyStats {
    /// The number of keys in all keyspaces.
    pub keys: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
    /// Bytes of memory of the value cache.
    pub cache_bytes: u64,
    /// Bytes of memory of versions that were replaced, and that a snapshot may read.
    pub history_bytes: u64,
    /// Bytes in the segments of the log.
    pub disk_bytes: u64,
    /// Bytes of the checkpoint that opening loaded; 0 if it loaded none.
    pub checkpoint_bytes: u64,
    /// Whether there was a checkpoint that cannot be used.
    pub checkpoint_corrupt: bool,
    /// Records that opening applied: those after the checkpoint, or all.
    pub replayed: u64,
    /// Open snapshots and scans.
    pub snapshots: usize,
}
