//! The hardware floor of a run.

use serde::{Serialize, Serializer};

/// The medians of the samples. In JSON, one that was not measured is `null`.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct FloorFigures {
    #[serde(serialize_with = "measured")]
    pub sync_p50_us: f64,
    #[serde(serialize_with = "measured")]
    pub append_sync_p50_us: f64,
    #[serde(serialize_with = "measured")]
    pub seq_mb_per_s: f64,
    #[serde(serialize_with = "measured")]
    pub read_mb_per_s: f64,
    #[serde(serialize_with = "measured")]
    pub memcpy_gb_per_s: f64,
    pub samples: usize,
    /// Random reads of the size of a record, by as many threads as there are callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_read_per_s: Option<f64>,
    /// Requests a second of the HTTP server without a cluster behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_rps: Option<f64>,
}

fn measured<S: Serializer>(figure: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    Some(*figure).filter(|figure| *figure > 0.0).serialize(serializer)
}
