//! The options of an oracle.

use std::time::Duration;

use crate::service::error::COUNT_MAX;

/// The options of an [`Oracle`](crate::Oracle).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OracleOptions {
    /// The most requests that wait at a time, beside as many that are being answered; above that,
    /// [`OracleError::Busy`](crate::OracleError::Busy). As many for sequences. 10,000.
    pub buffer: usize,
    /// The most timestamps of one request, 1 to [`COUNT_MAX`]. 65,536.
    pub max_timestamps: u32,
    /// An epoch is replaced after this time while requests come, and timestamps are issued of none
    /// that is older than twice this. 100 ms.
    pub epoch_interval: Duration,
    /// The largest step forward of the clock that is followed at once. 10 s.
    pub max_clock_step: Duration,
    /// The time for which a request waits for its answer, also one for sequences, a proof of
    /// leadership for a quorum, and an advance of the epoch for its commit. 1 s.
    pub patience: Duration,
    /// Deadlines in a row, `patience` each, by which a leader that proved that it leads got no
    /// epoch that requests needed, until the oracle gives up: see
    /// [`Oracle::gave_up`](crate::Oracle::gave_up). 100.
    pub failed_advances: u32,
}

impl Default for OracleOptions {
    fn default() -> Self {
        Self {
            buffer: 10_000,
            max_timestamps: COUNT_MAX,
            epoch_interval: Duration::from_millis(100),
            max_clock_step: Duration::from_secs(10),
            patience: Duration::from_secs(1),
            failed_advances: 100,
        }
    }
}
