//! Counters of a client.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of a client since it was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// The number of requests for timestamps that were sent, repeated ones included.
    pub requests: u64,
    /// The number of requests that were answered with timestamps. Each answers all callers that
    /// share it.
    pub batches: u64,
    /// The number of timestamps in these answers, those of cancelled callers included.
    pub timestamps: u64,
    /// The number of attempts that failed and were followed by another one: to connect, or to get
    /// timestamps or numbers.
    pub retries: u64,
    /// The number of connections that were made.
    pub connections: u64,
    /// The number of requests for numbers of sequences that were sent, repeated ones included.
    pub sequence_requests: u64,
    /// The number of times that timestamps or numbers came from another node than before.
    pub leader_changes: u64,
    /// The number of calls that ended with an error.
    pub failures: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) timestamps: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) sequence_requests: AtomicU64,
    pub(crate) leader_changes: AtomicU64,
    pub(crate) failures: AtomicU64,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> ClientStats {
        ClientStats {
            requests: self.requests.load(Relaxed),
            batches: self.batches.load(Relaxed),
            timestamps: self.timestamps.load(Relaxed),
            retries: self.retries.load(Relaxed),
            connections: self.connections.load(Relaxed),
            sequence_requests: self.sequence_requests.load(Relaxed),
            leader_changes: self.leader_changes.load(Relaxed),
            failures: self.failures.load(Relaxed),
        }
    }
}

pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}
