//! Counters of what a log did since it was opened.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    commits: AtomicU64,
    syncs: AtomicU64,
    bytes: AtomicU64,
}

/// Counters of a log since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// Commit units written.
    pub commits: u64,
    /// Syncs, writes through O_DSYNC included.
    pub syncs: u64,
    /// Bytes of commit units, headers and padding included.
    pub bytes: u64,
    /// Records written, up to the first that is not.
    pub records: u64,
}

impl Counters {
    pub(crate) fn wrote(&self, bytes: u64) {
        self.commits.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn synced(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    pub(crate) fn activity(&self, records: u64) -> LogStats {
        LogStats {
            commits: self.commits.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            records,
        }
    }
}
