//! The numbers of the newest records of an open log.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The newest record of each kind that an operation asks for. Threads may store out of order; every
/// use tolerates a slightly earlier record.
#[derive(Debug, Default)]
pub(crate) struct NewestRecords {
    newest: AtomicU64,
    /// The newest raise of the floor, durable or not; 0 before the first one.
    raise: AtomicU64,
    /// The newest cut, durable or not; 0 before the first one.
    cut: AtomicU64,
}

impl NewestRecords {
    #[inline]
    pub(crate) fn newest(&self) -> u64 {
        self.newest.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_newest(&self, seq: u64) {
        self.newest.store(seq, Relaxed);
    }

    pub(crate) fn newest_raise(&self) -> u64 {
        self.raise.load(Relaxed)
    }

    /// Stores the newest raise. The caller holds all slot locks.
    pub(crate) fn set_newest_raise(&self, seq: u64) {
        debug_assert!(seq > self.newest_raise(), "raises are not in the order of their records");
        self.raise.store(seq, Relaxed);
    }

    pub(crate) fn newest_cut(&self) -> u64 {
        self.cut.load(Relaxed)
    }

    /// Stores the newest cut. The caller holds all slot locks.
    pub(crate) fn set_newest_cut(&self, seq: u64) {
        debug_assert!(seq > self.newest_cut(), "cuts are not in the order of their records");
        self.cut.store(seq, Relaxed);
    }
}
