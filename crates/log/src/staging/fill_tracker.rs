//! Tracks whether every appender has finished its part of a unit.
//!
//! Appenders reserve their ranges in a unit one after another, under the commit core's lock. Then
//! they copy their payloads in parallel, without it. The unit may be written once as many bytes are
//! filled as were reserved. Each appender's release and the committer's acquire of the count order
//! the copies before the write.

use crate::runtime::sync::{AtomicU64, AtomicUsize, Ordering};

/// The fill count of one unit. The commit core reuses a few of these in turn.
#[derive(Debug, Default)]
pub(crate) struct FillTracker {
    filled: AtomicUsize,
    digest: AtomicU64,
}

impl FillTracker {
    /// Resets the count for a new unit. No appender fills the old one: its committer saw it
    /// complete.
    pub(crate) fn reset(&self) {
        self.digest.store(0, Ordering::Relaxed);
        self.filled.store(0, Ordering::Release);
    }

    /// Adds `bytes` that an appender has copied, and the checksum of their record.
    pub(crate) fn filled(&self, bytes: u32, crc: u32) {
        self.digest.fetch_add(u64::from(crc), Ordering::Relaxed);
        self.filled.fetch_add(bytes as usize, Ordering::Release);
    }

    /// The sum of the records' checksums, once exactly `bytes` are filled.
    pub(crate) fn complete(&self, bytes: u32) -> Option<u64> {
        (self.filled.load(Ordering::Acquire) == bytes as usize)
            .then(|| self.digest.load(Ordering::Relaxed))
    }
}
