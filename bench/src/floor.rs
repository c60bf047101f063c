//! The hardware floor beside the figures of a work.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use esker_bench::machine::floor::{self, median};
use esker_bench::measure::floor_figures::FloorFigures;
use serde::{Deserialize, Serialize};

/// The length of a sample.
const SAMPLE_TIME: Duration = Duration::from_secs(1);

/// Medians of one or more samples.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Floor {
    pub sync_p50_us: f64,
    pub append_sync_p50_us: f64,
    pub seq_mb_per_s: f64,
    pub read_mb_per_s: f64,
}

impl Floor {
    /// The median of each figure.
    pub fn median(samples: &[FloorFigures]) -> Option<Self> {
        let of = |figure: fn(&FloorFigures) -> f64| median(samples.iter().map(figure).collect());
        (!samples.is_empty()).then(|| Self {
            sync_p50_us: of(|floor| floor.sync_p50_us),
            append_sync_p50_us: of(|floor| floor.append_sync_p50_us),
            seq_mb_per_s: of(|floor| floor.seq_mb_per_s),
            read_mb_per_s: of(|floor| floor.read_mb_per_s),
        })
    }
}

/// Samples the floor with files that it keeps.
pub struct Sampler(floor::Floor);

impl Sampler {
    /// Writes the files in a directory that it creates.
    pub fn new(dir: &Path) -> Result<Self> {
        let floor =
            floor::Floor::prepare(dir).map_err(|failure| anyhow!("{}", failure.message()))?;
        Ok(Self(floor))
    }

    /// Takes a sample of about a second.
    pub fn sample(&mut self) -> Result<FloorFigures> {
        self.0.restart();
        let begin = Instant::now();
        while begin.elapsed() < SAMPLE_TIME {
            self.0.sample().map_err(|failure| anyhow!("{}", failure.message()))?;
        }
        Ok(self.0.medians())
    }
}
