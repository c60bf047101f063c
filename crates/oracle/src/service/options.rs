//! How an oracle works.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::service::error::COUNT_MAX;

/// The time, in nanoseconds since the beginning of 1970.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How an [`Oracle`](crate::Oracle) works.
#[derive(Clone)]
#[non_exhaustive]
pub struct OracleOptions {
    /// Requests that wait at a time, beside as many that are being answered; above that,
    /// [`OracleError::Busy`](crate::OracleError::Busy). 10,000.
    pub buffer: usize,
    /// The most timestamps of one request, 1 to [`COUNT_MAX`]. 65,536.
    pub max_timestamps: u32,
    /// How old an epoch gets while requests come. 100 ms.
    pub epoch_interval: Duration,
    /// How far the clock may step forward and be followed at once. 10 s.
    pub max_clock_step: Duration,
    /// How long a request waits for its answer, a proof of leadership for a quorum, and an
    /// advance of the epoch for its commit. 1 s.
    pub patience: Duration,
    /// Advances of the epoch in a row that miss their deadline until the oracle gives up: see
    /// [`Oracle::gave_up`](crate::Oracle::gave_up). 100.
    pub failed_advances: u32,
    /// The system's clock.
    pub clock: WallClock,
}

impl Default for OracleOptions {
    fn default() -> Self {
        let since = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let clock = move || since().map_or(0, |since| since.as_nanos() as u64);
        Self {
            buffer: 10_000,
            max_timestamps: COUNT_MAX,
            epoch_interval: Duration::from_millis(100),
            max_clock_step: Duration::from_secs(10),
            patience: Duration::from_secs(1),
            failed_advances: 100,
            clock: Arc::new(clock),
        }
    }
}

impl fmt::Debug for OracleOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OracleOptions")
            .field("buffer", &self.buffer)
            .field("max_timestamps", &self.max_timestamps)
            .field("epoch_interval", &self.epoch_interval)
            .field("max_clock_step", &self.max_clock_step)
            .field("patience", &self.patience)
            .field("failed_advances", &self.failed_advances)
            .finish_non_exhaustive()
    }
}
