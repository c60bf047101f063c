//! What a policy promises.

use std::time::Duration;

/// What a policy promises that a crash does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// No call that was answered.
    NoLoss,
    /// All calls but the last ones, at most this many.
    Calls(u64),
    /// All calls but those of this time before the crash.
    Age(Duration),
    /// Only what was explicitly made durable.
    Nothing,
}
