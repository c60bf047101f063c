//! Counters of what a log did since it was opened.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    commits: AtomicU64,
    syncs: AtomicU64,
    bytes: AtomicU64,
}

/// The counters as of one moment each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) commits: u64,
    pub(crate) syncs: u64,
    pub(crate) bytes: u64,
}

impl Counters {
    pub(crate) fn wrote(&self, bytes: u64) {
        self.commits.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn synced(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        Counts {
            commits: self.commits.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}
