//! Counts of the reads that fill a read cache.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reads of files into a read cache. Several caches of one reader, one after another, share these.
#[derive(Debug, Default)]
pub(crate) struct ReadCounts {
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl ReadCounts {
    pub(crate) fn add(&self, bytes: u64) {
        self.reads.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// The number of reads, and their bytes.
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.reads.load(Relaxed), self.bytes.load(Relaxed))
    }
}
