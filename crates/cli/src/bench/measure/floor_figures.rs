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
}
