//! The statistics of a store.

use std::time::Duration;

use esker_log::reclaim::Reclaimed;

/// Statistics of a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stats {
    /// The number of keys in all keyspaces.
    pub keys: u64,
    /// The bytes of memory of the index.
    pub index_bytes: u64,
    /// The bytes of memory of the value cache.
    pub cache_bytes: u64,
    /// The bytes in the segments of the log.
    pub disk_bytes: u64,
    /// The bytes of the last checkpoint; 0 if there is none.
    pub checkpoint_bytes: u64,
    /// The number of records that opening applied: those after the last checkpoint, or all.
    pub replayed: u64,
    /// The number of times that writers were held up because cleaning was behind.
    pub throttled: u64,
    /// The time that they waited, all together.
    pub throttled_time: Duration,
    /// The number of open snapshots and scans.
    pub snapshots: usize,
    /// The sum of all cleaning since the store was opened.
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
    /// The bytes of memory of the index.
    pub index_bytes: u64,
    /// The bytes of memory of the value cache.
    pub cache_bytes: u64,
    /// The bytes of memory of versions that were replaced, and that a snapshot may read.
    pub history_bytes: u64,
    /// The bytes in the segments of the log.
    pub disk_bytes: u64,
    /// The bytes of the checkpoint that opening loaded; 0 if it loaded none.
    pub checkpoint_bytes: u64,
    /// Whether there was a checkpoint that cannot be used.
    pub checkpoint_corrupt: bool,
    /// The number of records that opening applied: those after the checkpoint, or all.
    pub replayed: u64,
    /// The number of open snapshots and scans.
    pub snapshots: usize,
}
