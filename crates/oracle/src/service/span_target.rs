//! The target of spans, for a subscriber that sends them to a collector.

/// The target of the spans of the timestamp service: one span of each advance of the epoch, and in
/// `esker-server` one of each request. A subscriber that collects spans takes this target, and one
/// that writes log lines does not.
pub const SPAN_TARGET: &str = "esker::spans";
