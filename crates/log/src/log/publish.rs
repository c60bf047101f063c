//! Passes snapshots on to the recorder of the crate `metrics`.

use metrics::{Label, SharedString, Unit, counter, gauge, histogram};

use crate::log::metrics::LogMetrics;

/// A metric: its name, unit and description, and its value.
type Metric<V> = (&'static str, Unit, &'static str, fn(&LogMetrics) -> V);

const COUNTERS: [Metric<u64>; 5] = [
    ("esker_log_records_total", Unit::Count, "Records accepted.", |m| m.stats.appended),
    ("esker_log_payload_bytes_total", Unit::Bytes, "Bytes of their payloads.", |m| {
        m.stats.payload_bytes
    }),
    ("esker_log_commits_total", Unit::Count, "Writes of commit units.", |m| m.stats.commits),
    ("esker_log_commit_bytes_total", Unit::Bytes, "Bytes of commit units written.", |m| {
        m.stats.bytes
    }),
    ("esker_log_syncs_total", Unit::Count, "Syncs of commits.", |m| m.stats.syncs),
];

const GAUGES: [Metric<u64>; 14] = [
    ("esker_log_pending_records", Unit::Count, "Records accepted but not durable.", |m| {
        m.stats.pending
    }),
    ("esker_log_commits_in_flight", Unit::Count, "Commits that are being written.", |m| {
        m.stats.in_flight as u64
    }),
    ("esker_log_waiting_for_durability", Unit::Count, "Callers that wait for durability.", |m| {
        m.stats.waiting_for_durability as u64
    }),
    ("esker_log_waiting_for_room", Unit::Count, "Callers that wait for room to append.", |m| {
        m.stats.waiting_for_room as u64
    }),
    ("esker_log_memory_bytes", Unit::Bytes, "Staging buffers and tail cache.", |m| {
        m.stats.memory_bytes
    }),
    ("esker_log_durable", Unit::Count, "Number of the last durable record.", |m| {
        m.metadata.durable.0
    }),
    ("esker_log_segments", Unit::Count, "Segments.", |m| m.metadata.segments as u64),
    ("esker_log_disk_bytes", Unit::Bytes, "Bytes written in segments.", |m| m.metadata.disk_bytes),
    ("esker_log_spare_segments", Unit::Count, "Files that wait to be reused.", |m| {
        m.spare_segments as u64
    }),
    ("esker_log_reserve_bytes", Unit::Bytes, "Bytes that the reserve holds.", |m| m.reserve_bytes),
    ("esker_log_reserve_wanted_bytes", Unit::Bytes, "Bytes that it is to hold.", |m| {
        m.reserve_wanted_bytes
    }),
    ("esker_log_streams", Unit::Count, "Streams that were not dropped.", |m| {
        m.streams.len() as u64
    }),
    ("esker_log_stream_lag_records", Unit::Count, "Lag of the slowest stream.", |m| {
        m.streams.iter().map(|lag| lag.records).max().unwrap_or(0)
    }),
    ("esker_log_stream_lag_bytes", Unit::Bytes, "Lag of the slowest stream.", |m| {
        m.streams.iter().map(|lag| lag.bytes).max().unwrap_or(0)
    }),
];

const SYNC_DURATION: &str = "esker_log_sync_duration_seconds";

impl LogMetrics {
    /// Passes the snapshot on to the global recorder of the crate [`metrics`], version 0.24, with
    /// these labels. Needs the feature `metrics`.
    ///
    /// `since` is the snapshot that was published before with the same labels: counters grow by the
    /// difference, and the durations of the syncs in between are recorded, each as the upper end of
    /// its bucket. Without it, or with that of an earlier opening, everything counts since the log
    /// was opened.
    ///
    /// All names begin with `esker_log_`. The chapter "Operating a log" of the book lists them.
    /// Allocates for the labels of each metric.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// let mut last = None;
    /// # for _ in 0..3 {
    /// // Every few seconds:
    /// let metrics = log.metrics();
    /// metrics.publish(last.as_ref(), &[("log", "orders")]);
    /// last = Some(metrics);
    /// # }
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn publish(&self, since: Option<&Self>, labels: &[(&str, &str)]) {
        let owned = |text: &str| SharedString::from_owned(text.to_owned());
        let label = |(key, value): &(&str, &str)| Label::new(owned(key), owned(value));
        let labels: Vec<Label> = labels.iter().map(label).collect();
        let since = since.filter(|since| self.is_of_the_same_opening(since));
        if since.is_none() {
            describe();
        }
        for (name, .., count) in COUNTERS {
            let grown = count(self).saturating_sub(since.map_or(0, count));
            counter!(name, labels.iter()).increment(grown);
        }
        for (name, .., value) in GAUGES {
            gauge!(name, labels.iter()).set(value(self) as f64);
        }
        let durations = histogram!(SYNC_DURATION, labels.iter());
        let mut before = since.map(|since| since.sync_durations.buckets());
        for (end, count) in self.sync_durations.buckets() {
            let before = before.as_mut().and_then(Iterator::next).map_or(0, |(_, count)| count);
            durations.record_many(end.as_secs_f64(), count.saturating_sub(before) as usize);
        }
    }

    fn is_of_the_same_opening(&self, other: &Self) -> bool {
        let opening = |m: &Self| (m.metadata.id, m.metadata.session);
        opening(self) == opening(other)
    }
}

fn describe() {
    for (name, unit, description, _) in COUNTERS {
        metrics::describe_counter!(name, unit, description);
    }
    for (name, unit, description, _) in GAUGES {
        metrics::describe_gauge!(name, unit, description);
    }
    let description = "Durations of the syncs of commits.";
    metrics::describe_histogram!(SYNC_DURATION, Unit::Seconds, description);
}
