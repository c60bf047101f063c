//! Counters of an oracle.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::watch;

use crate::range::Range;

/// The counters of an oracle since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OracleStats {
    /// Requests that were answered with timestamps.
    pub requests: u64,
    /// Requests that were answered under a lease, without a proof.
    pub leased: u64,
    /// Timestamps that were issued.
    pub timestamps: u64,
    /// Batches of requests: each had one proof of leadership.
    pub batches: u64,
    /// Requests that got no answer in time.
    pub timed_out: u64,
    /// Epochs that this process got.
    pub advances: u64,
    /// Advances of the epoch that failed.
    pub failed_advances: u64,
    /// Times that the clock began to be behind the last epoch.
    pub backward_steps: u64,
    /// Times that the clock began to be further ahead than is believed.
    pub forward_steps: u64,
}

#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) leased: AtomicU64,
    pub(crate) timestamps: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) advances: AtomicU64,
    pub(crate) failed_advances: AtomicU64,
    pub(crate) backward_steps: AtomicU64,
    pub(crate) forward_steps: AtomicU64,
    /// Set when too many advances failed in a row.
    pub(crate) gave_up: watch::Sender<bool>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            requests: AtomicU64::new(0),
            leased: AtomicU64::new(0),
            timestamps: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            advances: AtomicU64::new(0),
            failed_advances: AtomicU64::new(0),
            backward_steps: AtomicU64::new(0),
            forward_steps: AtomicU64::new(0),
            gave_up: watch::Sender::new(false),
        }
    }

    pub(crate) fn stats(&self) -> OracleStats {
        OracleStats {
            requests: self.requests.load(Relaxed),
            leased: self.leased.load(Relaxed),
            timestamps: self.timestamps.load(Relaxed),
            batches: self.batches.load(Relaxed),
            timed_out: self.timed_out.load(Relaxed),
            advances: self.advances.load(Relaxed),
            failed_advances: self.failed_advances.load(Relaxed),
            backward_steps: self.backward_steps.load(Relaxed),
            forward_steps: self.forward_steps.load(Relaxed),
        }
    }
}

impl Counters {
    /// Counts a request that was answered under a lease.
    pub(crate) fn count_leased(&self, range: Range) {
        count(&self.leased, 1);
        count(&self.requests, 1);
        count(&self.timestamps, u64::from(range.count));
    }
}

pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}
