//! How the committer knows that every appender has finished its part of a unit.
//!
//! Appenders take their places in a unit one after another, under the core's lock, and then copy
//! their payloads side by side, without it. The unit may be written once as many bytes are filled
//! as were taken. The release of each appender's count, and the acquire of the committer's look,
//! order the copies before the write.

use crate::runtime::sync::{AtomicU64, AtomicUsize, Ordering};

/// One unit's count. The core reuses a few of these in turn.
#[derive(Debug, Default)]
pub(crate) struct FillTracker {
    filled: AtomicUsize,
    digest: AtomicU64,
}

impl FillTracker {
    /// Starts over for a new unit. Nobody is filling the old one: its committer saw the end of it.
    pub(crate) fn reset(&self) {
        self.digest.store(0, Ordering::Relaxed);
        self.filled.store(0, Ordering::Release);
    }

    /// An appender has copied `bytes`, with a record of this checksum.
    pub(crate) fn filled(&self, bytes: u32, crc: u32) {
        self.digest.fetch_add(u64::from(crc), Ordering::Relaxed);
        self.filled.fetch_add(bytes as usize, Ordering::Release);
    }

    /// The sum of the records' checksums, once `bytes` are filled.
    pub(crate) fn complete(&self, bytes: u32) -> Option<u64> {
        (self.filled.load(Ordering::Acquire) == bytes as usize)
            .then(|| self.digest.load(Ordering::Relaxed))
    }
}
