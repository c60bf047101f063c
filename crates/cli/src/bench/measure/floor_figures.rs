//! The hardware floor of a run.

use serde::Serialize;

/// The medians of the samples.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct FloorFigures {
    pub sync_p50_us: f64,
    pub append_sync_p50_us: f64,
    pub seq_mb_per_s: f64,
    pub read_mb_per_s: f64,
    pub memcpy_gb_per_s: f64,
    pub samples: usize,
    /// Random reads of the size of a record, by as many threads as there are callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_read_per_s: Option<f64>,
    /// Requests a second of the HTTP server without a cluster behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_rps: Option<f64>,
}
