//! How far each stream of a log has come.
//!
//! A stream stores its progress after each batch, without a lock, and is in the table until it is
//! dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use slab::Slab;

use crate::base::position::Seq;

/// How far a [`LogStream`](crate::LogStream) lags. Records are read once the stream has delivered
/// the batch that holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamLag {
    /// The number up to which the stream has delivered everything. Before its first batch, that
    /// before its start; for one that starts at a time, that before the oldest record.
    pub after: Seq,
    /// Numbers from there to the last durable record. Where numbers have no gaps, that is how many
    /// records it has still to deliver.
    pub records: u64,
    /// Bytes from there to the end of the last durable commit unit, with headers and padding.
    pub bytes: u64,
}

impl StreamLag {
    /// The records of the stream that lags most.
    pub(crate) fn most_records(lags: &[Self]) -> u64 {
        lags.iter().map(|lag| lag.records).max().unwrap_or(0)
    }

    /// The bytes of the stream that lags most.
    pub(crate) fn most_bytes(lags: &[Self]) -> u64 {
        lags.iter().map(|lag| lag.bytes).max().unwrap_or(0)
    }
}

/// The streams that were not dropped.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    streams: Mutex<Slab<Arc<Progress>>>,
}

/// How far a stream has come.
#[derive(Debug)]
pub(crate) struct Progress {
    seq: AtomicU64,
    position: AtomicU64,
}

impl StreamTable {
    /// Returns the progress for a new stream to store, and the key with which it is removed.
    pub(crate) fn add(&self, seq: u64, position: u64) -> (usize, Arc<Progress>) {
        let progress = Progress { seq: AtomicU64::new(seq), position: AtomicU64::new(position) };
        let progress = Arc::new(progress);
        (self.streams.lock().insert(Arc::clone(&progress)), progress)
    }

    pub(crate) fn remove(&self, key: usize) {
        self.streams.lock().try_remove(key);
    }

    /// How far each stream lags where the log is durable up to here.
    pub(crate) fn lags(&self, seq: u64, position: u64) -> Vec<StreamLag> {
        let streams = self.streams.lock();
        let lag = |(_, progress): (usize, &Arc<Progress>)| {
            let after = progress.seq.load(Relaxed);
            StreamLag {
                after: Seq(after),
                records: seq.saturating_sub(after),
                bytes: position.saturating_sub(progress.position.load(Relaxed)),
            }
        };
        streams.iter().map(lag).collect()
    }
}

impl Progress {
    pub(crate) fn store_seq(&self, seq: Seq) {
        self.seq.store(seq.0, Relaxed);
    }

    pub(crate) fn store_position(&self, position: u64) {
        self.position.store(position, Relaxed);
    }
}
