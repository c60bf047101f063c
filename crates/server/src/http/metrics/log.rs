//! The node's log and its disk, under the names of `LogMetrics::publish`.

use std::time::Duration;

use esker_log::{DurationHistogram, LogMetrics};

use crate::http::metrics::families::{Counted, Families};

/// The ends of the buckets of syncs: powers of two from 64 µs to 8.4 s.
const ENDS: std::ops::RangeInclusive<u32> = 6..=23;

pub(crate) fn register(families: &mut Families, log: &LogMetrics) {
    let LogMetrics { stats, metadata, .. } = log;
    families.counter("log_records", "Records that the log accepted", stats.appended);
    families.counted_bytes("log_payload", "Bytes of records in the log", stats.payload_bytes);
    families.counter("log_commits", "Writes of commit units", stats.commits);
    families.counted_bytes("log_commit", "Bytes of commit units written", stats.bytes);
    families.counter("log_syncs", "Syncs of commits", stats.syncs);
    let syncs = counted(&log.sync_durations);
    families.any_seconds("log_sync_duration", "Durations of the syncs of commits", syncs);
    let mut gauge = |name: &str, help: &str, value: u64| families.gauge(name, help, value as f64);
    gauge("log_pending_records", "Records that are accepted but not durable", stats.pending);
    gauge("log_commits_in_flight", "Commits that are being written", stats.in_flight as u64);
    let waiting = stats.waiting_for_durability as u64;
    gauge("log_waiting_for_durability", "Callers that wait for durability", waiting);
    let waiting = stats.waiting_for_room as u64;
    gauge("log_waiting_for_room", "Callers that wait for room to append", waiting);
    gauge("log_segments", "Segments of the log", metadata.segments as u64);
    let spares = log.spare_segments as u64;
    gauge("log_spare_segments", "Segment files that wait to be reused", spares);
    families.bytes("log_memory", "Staging buffers and tail cache of the log", stats.memory_bytes);
    families.bytes("log_disk", "Bytes written in segments", metadata.disk_bytes);
    families.bytes("log_reserve", "Bytes of disk that the reserve holds", log.reserve_bytes);
    let help = "Bytes of disk that the reserve is to hold";
    families.bytes("log_reserve_wanted", help, log.reserve_wanted_bytes);
}

/// The same in fewer buckets.
fn counted(durations: &DurationHistogram) -> Counted {
    let ends = ENDS.map(|power| Duration::from_micros(1 << power));
    let mut buckets: Vec<_> = ends.map(|end| (end.as_secs_f64(), 0)).collect();
    buckets.push((f64::MAX, 0));
    for (end, count) in durations.buckets() {
        let end = end.as_secs_f64();
        if let Some(bucket) = buckets.iter_mut().find(|(wider, _)| end <= *wider) {
            bucket.1 += count;
        }
    }
    Counted { sum: durations.sum().as_secs_f64(), buckets }
}
