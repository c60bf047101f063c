//! Metrics of the node's log and its disk, as `LogMetrics::values` lists them.

use std::time::Duration;

use esker_log::{DurationHistogram, LogMetrics, MetricKind, MetricUnit, MetricValue};

use crate::http::metrics::families::{Families, HistogramSnapshot};

/// The ends of the buckets of syncs, powers of two in microseconds: from 64 µs to 8.4 s.
const SYNC_BUCKET_POWERS: std::ops::RangeInclusive<u32> = 6..=23;

pub(crate) fn register(families: &mut Families, log: &LogMetrics) {
    for MetricValue { name, description, kind, unit, value, .. } in log.values() {
        // Families add the prefix, the unit and `_total`, and the full stop of the description.
        debug_assert!(name.starts_with("esker_"), "{name} has the prefix of all metrics");
        let name = name.strip_prefix("esker_").unwrap_or(name);
        let name = name.strip_suffix("_total").unwrap_or(name);
        let bytes = name.strip_suffix("_bytes").unwrap_or(name);
        let help = description.strip_suffix('.').unwrap_or(description);
        match (kind, unit) {
            (MetricKind::Counter, MetricUnit::Count) => families.counter(name, help, value),
            (MetricKind::Counter, MetricUnit::Bytes) => families.bytes_counter(bytes, help, value),
            (MetricKind::Gauge, MetricUnit::Count) => families.gauge(name, help, value as f64),
            (MetricKind::Gauge, MetricUnit::Bytes) => families.bytes(bytes, help, value),
        }
    }
    let syncs = merge_buckets(&log.sync_durations);
    families.any_seconds("log_sync_duration", "Durations of the syncs of commits", syncs);
}

/// Merges a histogram into fewer buckets.
fn merge_buckets(durations: &DurationHistogram) -> HistogramSnapshot {
    let ends = SYNC_BUCKET_POWERS.map(|power| Duration::from_micros(1 << power));
    let mut buckets: Vec<_> = ends.map(|end| (end.as_secs_f64(), 0)).collect();
    buckets.push((f64::MAX, 0));
    for (end, count) in durations.buckets() {
        let end = end.as_secs_f64();
        // The last bucket has no end.
        let bucket = buckets.partition_point(|(wider, _)| *wider < end);
        buckets[bucket].1 += count;
    }
    HistogramSnapshot::new(durations.sum().as_secs_f64(), buckets)
}
