//! The list of the metrics of an open log.

use crate::base::metric_value::MetricKind::{Counter, Gauge};
use crate::base::metric_value::MetricUnit::{Bytes, Count};
use crate::base::metric_value::{self, MetricValue, Row};
use crate::log::metrics::LogMetrics;
use crate::read::stream_table::StreamLag;

const ROWS: &[Row<LogMetrics>] = &[
    ("esker_log_records_total", Counter, Count, "Records accepted.", |m| m.stats.appended),
    ("esker_log_payload_bytes_total", Counter, Bytes, "Bytes of their payloads.", |m| {
        m.stats.payload_bytes
    }),
    ("esker_log_commits_total", Counter, Count, "Writes of commit units.", |m| m.stats.commits),
    ("esker_log_commit_bytes_total", Counter, Bytes, "Bytes of commit units written.", |m| {
        m.stats.bytes
    }),
    ("esker_log_syncs_total", Counter, Count, "Syncs of commits.", |m| m.stats.syncs),
    ("esker_log_pending_records", Gauge, Count, "Records accepted but not durable.", |m| {
        m.stats.pending
    }),
    ("esker_log_commits_in_flight", Gauge, Count, "Commits that are being written.", |m| {
        m.stats.in_flight as u64
    }),
    ("esker_log_waiting_for_durability", Gauge, Count, "Callers that wait for durability.", |m| {
        m.stats.waiting_for_durability as u64
    }),
    ("esker_log_waiting_for_room", Gauge, Count, "Callers that wait for room to append.", |m| {
        m.stats.waiting_for_room as u64
    }),
    ("esker_log_memory_bytes", Gauge, Bytes, "Staging buffers and tail cache.", |m| {
        m.stats.memory_bytes
    }),
    ("esker_log_durable", Gauge, Count, "Number of the last durable record.", |m| {
        m.metadata.durable.0
    }),
    ("esker_log_segments", Gauge, Count, "Segments.", |m| m.metadata.segments as u64),
    ("esker_log_disk_bytes", Gauge, Bytes, "Bytes written in segments.", |m| m.metadata.disk_bytes),
    ("esker_log_spare_segments", Gauge, Count, "Files that wait to be reused.", |m| {
        m.spare_segments as u64
    }),
    ("esker_log_reserve_bytes", Gauge, Bytes, "Bytes that the reserve holds.", |m| m.reserve_bytes),
    ("esker_log_reserve_wanted_bytes", Gauge, Bytes, "Bytes that the reserve is to hold.", |m| {
        m.reserve_wanted_bytes
    }),
    ("esker_log_streams", Gauge, Count, "Streams that were not dropped.", |m| {
        m.streams.len() as u64
    }),
    ("esker_log_stream_lag_records", Gauge, Count, "Lag of the slowest stream.", |m| {
        StreamLag::most_records(&m.streams)
    }),
    ("esker_log_stream_lag_bytes", Gauge, Bytes, "Lag of the slowest stream.", |m| {
        StreamLag::most_bytes(&m.streams)
    }),
];

impl LogMetrics {
    /// Returns each metric with its name and value, for an exporter. All but the durations of
    /// syncs, which [`LogMetrics::sync_durations`] has: their name is
    /// `esker_log_sync_duration_seconds`.
    ///
    /// The chapter "Operating a log" of the book lists them. Later versions may add some.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// log.append("a record")?.blocking_wait()?;
    /// let values = log.metrics().values();
    /// let accepted = values.iter().find(|metric| metric.name == "esker_log_records_total");
    /// assert_eq!(accepted.map(|metric| metric.value), Some(1));
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn values(&self) -> Vec<MetricValue> {
        metric_value::values(ROWS, self)
    }
}
