//! What is counted while requests are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hyper::{StatusCode, Version};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Statuses that are counted by themselves.
pub(crate) const STATUSES: [u16; 13] =
    [200, 204, 307, 400, 403, 404, 405, 409, 415, 422, 500, 503, 0];

/// Protocols that are counted by themselves.
pub(crate) const PROTOCOLS: [&str; 3] = ["h1", "h2c", "h3"];

/// What is counted while requests are answered. All else is read when it is asked for.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) answers: [AtomicU64; STATUSES.len()],
    /// Requests over each of [`PROTOCOLS`].
    pub(crate) requests: [AtomicU64; PROTOCOLS.len()],
    pub(crate) latency: Histogram,
    pub(crate) connections: AtomicI64,
    pub(crate) accepted: AtomicU64,
    /// Connections beyond the limit.
    pub(crate) over_limit: AtomicU64,
    /// Of these connections, the ones over HTTP/3.
    pub(crate) http3_connections: AtomicI64,
    /// Times that the disk began to stall while this node led.
    pub(crate) disk_stalls: AtomicU64,
    /// Tasks that panicked, or ended although the node runs.
    pub(crate) failed_tasks: Arc<AtomicU64>,
    /// When the certificate of HTTP/3 ends, in seconds since 1970; 0 if there is none.
    pub(crate) certificate_ends: AtomicU64,
    /// Counted by the program, if it sends spans.
    pub(crate) spans_lost: Option<Arc<AtomicU64>>,
}

impl Counters {
    pub(crate) fn new(spans_lost: Option<Arc<AtomicU64>>) -> Self {
        Self {
            answers: Default::default(),
            requests: Default::default(),
            latency: Histogram::new(exponential_buckets(50e-6, 2.0, 16)),
            connections: AtomicI64::new(0),
            accepted: AtomicU64::new(0),
            over_limit: AtomicU64::new(0),
            http3_connections: AtomicI64::new(0),
            disk_stalls: AtomicU64::new(0),
            failed_tasks: Arc::default(),
            certificate_ends: AtomicU64::new(0),
            spans_lost,
        }
    }

    pub(crate) fn requested(&self, version: Version) {
        let [http1, http2, http3] = &self.requests;
        let counter = match version {
            Version::HTTP_3 => http3,
            Version::HTTP_2 => http2,
            _ => http1,
        };
        counter.fetch_add(1, Relaxed);
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

    #[cfg(feature = "http3")]
    pub(crate) fn connected_http3(&self, more: i64) {
        self.connected(more);
        self.http3_connections.fetch_add(more, Relaxed);
    }

    /// Counts a connection over TCP until the answer is dropped.
    pub(crate) fn open(&self) -> OpenConnection<'_> {
        self.connected(1);
        OpenConnection(self)
    }

    pub(crate) fn connected(&self, more: i64) {
        self.connections.fetch_add(more, Relaxed);
        self.accepted.fetch_add(u64::from(more > 0), Relaxed);
    }
}

/// A connection over TCP that is open. A panic ends it alone, and is counted.
#[derive(Debug)]
pub(crate) struct OpenConnection<'a>(&'a Counters);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.connected(-1);
        if std::thread::panicking() {
            self.0.failed_tasks.fetch_add(1, Relaxed);
            tracing::error!("a request panicked, and ends its connection");
        }
    }
}
