//! The options of a consensus log that the lab varies.

use esker_consensus::Mode;

/// The options that promise different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    pub mode: Mode,
    pub sync_on_commit: bool,
    /// A cache that holds next to nothing, and a value budget that is full now and then.
    pub small: bool,
}

impl Setup {
    pub fn new(mode: Mode, small: bool) -> Self {
        Self { mode, sync_on_commit: true, small }
    }

    /// The bytes of the value budget.
    pub fn room(&self) -> u64 {
        if self.small { 12 << 10 } else { 64 << 20 }
    }
}
