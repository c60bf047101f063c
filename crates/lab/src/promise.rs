//! The promise of a policy.

use std::time::Duration;

/// The promise of a policy: the writes that no crash takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Every call that was answered survives.
    NoLoss,
    /// All calls survive but the last ones, at most this many.
    Calls(u64),
    /// All calls survive but those of this time before the crash.
    Age(Duration),
    /// Only calls that were explicitly made durable survive.
    Nothing,
}
