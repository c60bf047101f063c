//! What the bare disk can do, sampled in the same run by `esker bench floor`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::child;

const LIMIT: Duration = Duration::from_secs(60);

/// Medians of one or more samples.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Floor {
    pub sync_p50_us: f64,
    pub append_sync_p50_us: f64,
    pub seq_mb_per_s: f64,
    pub read_mb_per_s: f64,
}

/// How the floor is measured.
#[derive(Debug)]
pub struct Sampler {
    pub esker: PathBuf,
    pub dir: PathBuf,
}

impl Sampler {
    /// One sample of about a second.
    pub fn sample(&self) -> Result<Floor, String> {
        #[derive(Deserialize)]
        struct Line {
            floor: Floor,
        }
        let mut command = Command::new(&self.esker);
        command.args(["bench", "floor", "--json", "--seconds", "1", "--dir"]).arg(&self.dir);
        let printed = child::output(&mut command, LIMIT)?;
        let line: Line = serde_json::from_str(printed.trim()).map_err(|error| error.to_string())?;
        Ok(line.floor)
    }
}

impl Floor {
    /// The median of each figure.
    pub fn median(samples: &[Self]) -> Option<Self> {
        if samples.is_empty() {
            return None;
        }
        let of = |figure: fn(&Self) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(figure).collect();
            values.sort_by(f64::total_cmp);
            let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
            (f64::midpoint(low, high) * 100.0).round() / 100.0
        };
        Some(Self {
            sync_p50_us: of(|floor| floor.sync_p50_us),
            append_sync_p50_us: of(|floor| floor.append_sync_p50_us),
            seq_mb_per_s: of(|floor| floor.seq_mb_per_s),
            read_mb_per_s: of(|floor| floor.read_mb_per_s),
        })
    }
}
