//! What is counted while requests are answered.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hyper::StatusCode;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Statuses that are counted by themselves.
pub(crate) const STATUSES: [u16; 12] = [200, 204, 400, 403, 404, 405, 409, 415, 422, 500, 503, 0];

/// What is counted while requests are answered. All else is read when it is asked for.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) answers: [AtomicU64; STATUSES.len()],
    pub(crate) latency: Histogram,
    pub(crate) connections: AtomicI64,
    pub(crate) accepted: AtomicU64,
    /// Times that the disk began to stall while this node led.
    pub(crate) disk_stalls: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            answers: Default::default(),
            latency: Histogram::new(exponential_buckets(50e-6, 2.0, 16)),
            connections: AtomicI64::new(0),
            accepted: AtomicU64::new(0),
            disk_stalls: AtomicU64::new(0),
        }
    }

    pub(crate) fn answered(&self, is_timestamp: bool, status: StatusCode, latency: Duration) {
        let at = STATUSES.iter().position(|known| *known == status.as_u16());
        if let Some(counter) = self.answers.get(at.unwrap_or(STATUSES.len() - 1)) {
            counter.fetch_add(1, Relaxed);
        }
        if is_timestamp && status == StatusCode::OK {
            self.latency.observe(latency.as_secs_f64());
        }
    }

    pub(crate) fn connected(&self, more: i64) {
        self.connections.fetch_add(more, Relaxed);
        self.accepted.fetch_add(u64::from(more > 0), Relaxed);
    }
}
