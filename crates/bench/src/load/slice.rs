//! Slices of a run: when one starts and when it ends.

use std::time::{Duration, Instant};

use crate::measure::resources::Snapshot;

/// When a slice ends.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    Elapsed(Duration),
    /// Records of one caller.
    Records(u64),
}

impl Until {
    /// Returns the most records of one caller in a slice that began at `begin`, and its deadline.
    pub fn limits(self, begin: Instant) -> (u64, Option<Instant>) {
        match self {
            Self::Elapsed(time) => (u64::MAX, begin.checked_add(time)),
            Self::Records(records) => (records, None),
        }
    }
}

/// The start of a slice: the time at which all callers were ready.
#[derive(Debug, Clone, Copy)]
pub struct SliceStart {
    pub begin: Instant,
    pub snapshot: Snapshot,
}

impl SliceStart {
    /// Starts a slice now.
    pub fn now() -> Self {
        Self { begin: Instant::now(), snapshot: Snapshot::now() }
    }
}
