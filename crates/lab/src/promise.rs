//! The promise of a policy.

use std::time::Duration;

/// The promise of a policy: the writes that no crash takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// A crash takes no call that was answered.
    NoLoss,
    /// All calls but the last ones, at most this many.
    Calls(u64),
    /// All calls but those of this time before the crash.
    Age(Duration),
    /// A crash takes no call that was explicitly made durable.
    Nothing,
}
