//! Counters of requests, answers and connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hyper::{StatusCode, Version};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::reload::ReloadFailures;
use crate::tls_refusals::TlsRefusals;

/// The statuses with a counter of their own. The last one counts all others.
pub(crate) const STATUSES: [u16; 16] =
    [200, 201, 204, 307, 400, 401, 403, 404, 405, 409, 410, 415, 422, 500, 503, 0];

/// The protocols with a counter of their own: HTTP/1.1 and HTTP/2 without TLS, both with TLS, and
/// HTTP/3.
pub(crate) const PROTOCOLS: [&str; 5] = ["h1", "h2c", "h1_tls", "h2", "h3"];

const OTHER_STATUS: usize = STATUSES.len() - 1;

const _: () = assert!(STATUSES[OTHER_STATUS] == 0, "the last counter is that of other statuses");

/// The counters of a node. All other metrics are read when a client asks for them.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) answers: [AtomicU64; STATUSES.len()],
    /// Requests over each of [`PROTOCOLS`].
    pub(crate) requests: [AtomicU64; PROTOCOLS.len()],
    pub(crate) latency: Histogram,
    pub(crate) connections: AtomicI64,
    pub(crate) accepted: AtomicU64,
    /// The number of connections beyond the limit.
    pub(crate) over_limit: AtomicU64,
    /// The number of open connections over HTTP/3.
    pub(crate) http3_connections: AtomicI64,
    /// The number of times that the disk began to stall while this node led.
    pub(crate) disk_stalls: AtomicU64,
    /// The number of tasks that panicked, or ended although the node runs.
    pub(crate) failed_tasks: Arc<AtomicU64>,
    /// Connections that TLS refused.
    pub(crate) tls_refusals: Arc<TlsRefusals>,
    /// The end of the certificate for clients, in seconds since 1970; 0 if there is none.
    pub(crate) certificate_ends: AtomicU64,
    /// The files that could not be read again.
    pub(crate) reload_failures: Arc<ReloadFailures>,
    /// The number of lost spans, counted by the program if it sends spans.
    pub(crate) spans_lost: Option<Arc<AtomicU64>>,
}

impl Counters {
    pub(crate) fn new(
        spans_lost: Option<Arc<AtomicU64>>,
        tls_refusals: Arc<TlsRefusals>,
        reload_failures: Arc<ReloadFailures>,
    ) -> Self {
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
            tls_refusals,
            certificate_ends: AtomicU64::new(0),
            reload_failures,
            spans_lost,
        }
    }

    pub(crate) fn count_request(&self, version: Version, is_encrypted: bool) {
        let [http1, http2, http1_tls, http2_tls, http3] = &self.requests;
        let counter = match (version, is_encrypted) {
            (Version::HTTP_3, _) => http3,
            (Version::HTTP_2, false) => http2,
            (Version::HTTP_2, true) => http2_tls,
            // HTTP/1.1 and what is older.
            (_, false) => http1,
            (_, true) => http1_tls,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_answer(&self, is_timestamp: bool, status: StatusCode, latency: Duration) {
        let at = STATUSES.iter().position(|known| *known == status.as_u16());
        self.answers[at.unwrap_or(OTHER_STATUS)].fetch_add(1, Relaxed);
        if is_timestamp && status == StatusCode::OK {
            self.latency.observe(latency.as_secs_f64());
        }
    }

    #[cfg(feature = "http3")]
    pub(crate) fn open_http3_connection(&self) {
        self.http3_connections.fetch_add(1, Relaxed);
        self.open_connection();
    }

    #[cfg(feature = "http3")]
    pub(crate) fn close_http3_connection(&self) {
        let before = self.http3_connections.fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "a connection is closed once");
        self.close_connection();
    }

    /// Counts a connection over TCP until the guard is dropped.
    pub(crate) fn guard_connection(&self) -> ConnectionGuard<'_> {
        self.open_connection();
        ConnectionGuard(self)
    }

    fn open_connection(&self) {
        self.connections.fetch_add(1, Relaxed);
        self.accepted.fetch_add(1, Relaxed);
    }

    /// Counts the end of a connection. A panic of one of its requests ends it, and is counted.
    fn close_connection(&self) {
        let before = self.connections.fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "a connection is closed once");
        if std::thread::panicking() {
            self.count_panic();
        }
    }

    /// Counts a request that panicked.
    pub(crate) fn count_panic(&self) {
        self.failed_tasks.fetch_add(1, Relaxed);
        tracing::error!("a request panicked, and ends its connection");
    }
}

/// An open connection over TCP.
#[derive(Debug)]
pub(crate) struct ConnectionGuard<'a>(&'a Counters);

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.0.close_connection();
    }
}
