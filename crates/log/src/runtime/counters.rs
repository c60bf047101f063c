//! Counters of what a log did since it was opened.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::runtime::histogram::{AtomicHistogram, DurationHistogram};

/// Changed once for each commit, by the thread that runs it. They share no cache line with what
/// appenders read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    commits: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicHistogram,
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

    /// Counts a sync that began at `start`. Returns the time, at which the next one may begin.
    pub(crate) fn synced(&self, start: Instant) -> Instant {
        let now = Instant::now();
        self.syncs.record(now - start);
        now
    }

    pub(crate) fn read(&self) -> Counts {
        Counts {
            commits: self.commits.load(Relaxed),
            syncs: self.syncs.count(),
            bytes: self.bytes.load(Relaxed),
        }
    }

    pub(crate) fn sync_durations(&self) -> DurationHistogram {
        self.syncs.read()
    }
}
