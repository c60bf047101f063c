//! The options of a run.

use esker_testkit::{SplitMix64, mix};

/// The mode of reads under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseMode {
    /// Reads under a lease are never on.
    Off,
    /// Reads under a lease are on from the start.
    On,
    /// Reads under a lease are switched on and off during the run.
    Switched,
}

/// The range of faults of wall clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockFaults {
    /// Clocks step by an hour at most.
    Hours,
    /// Clocks are set to any time from 1960 to 2600, also before the cluster has its first epoch.
    Centuries,
}

/// The options of a run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The seed, which determines all events.
    pub seed: u64,
    /// The number of nodes, 2 to 9.
    pub nodes: u64,
    /// The time in which faults happen, in milliseconds; 0 for no faults.
    pub faults_ms: u64,
    /// The time without faults before that, in milliseconds.
    pub calm_ms: u64,
    /// The mode of reads under a lease.
    pub leases: LeaseMode,
    /// The range of faults of wall clocks.
    pub clocks: ClockFaults,
    /// Set to have callers that take numbers of a sequence, too. Without them the events of a seed
    /// are others.
    pub sequences: bool,
    /// Set to keep the lines of the trace.
    pub keeps_trace: bool,
}

impl Options {
    /// The options of a run of three or five nodes with 20 s of faults, with leases off, on or
    /// switched.
    pub fn from_seed(seed: u64) -> Self {
        let mut random = SplitMix64::new(mix(seed, 0));
        Self {
            seed,
            nodes: random.pick(&[3, 3, 3, 5]),
            faults_ms: 20_000,
            calm_ms: 1_000,
            leases: random.pick(&[LeaseMode::Off, LeaseMode::On, LeaseMode::Switched]),
            clocks: ClockFaults::Hours,
            sequences: false,
            keeps_trace: false,
        }
    }
}
