//! The result of a job, and the measurement that it comes from.

use std::time::Duration;

use esker_bench::measure::latency::Latencies;
use serde::{Deserialize, Serialize};

/// A timed part.
#[derive(Debug)]
pub struct TimedPart {
    pub ops: u64,
    pub took: Duration,
    pub times: Latencies,
}

impl TimedPart {
    /// A timed part that is one operation.
    pub fn once(took: Duration) -> Self {
        let mut times = Latencies::new();
        times.add(took);
        Self { ops: 1, took, times }
    }

    /// The result of a durable and verified work that moved `bytes`, without version and note.
    pub fn result(&self, bytes: u64) -> JobResult {
        JobResult {
            work: None,
            ops: self.ops,
            bytes,
            seconds: self.took.as_secs_f64(),
            p50_us: self.times.quantile_us(0.5),
            p99_us: self.times.quantile_us(0.99),
            p999_us: None,
            verified: true,
            durable: true,
            version: String::new(),
            note: String::new(),
            reader_mb_per_s: None,
        }
    }
}

/// The result of a job. A child prints it as one line of JSON, or several as an array.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobResult {
    /// The name of the work, if the job does several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    pub ops: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_us: Option<f64>,
    pub verified: bool,
    pub durable: bool,
    pub version: String,
    pub note: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader_mb_per_s: Option<f64>,
}
