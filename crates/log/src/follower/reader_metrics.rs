//! Metrics of a log that another process writes.

use std::sync::atomic::Ordering::Relaxed;

use super::ReadOnlyLog;
use crate::base::metric_value::MetricKind::{Counter, Gauge};
use crate::base::metric_value::MetricUnit::{Bytes, Count};
use crate::base::metric_value::{self, MetricValue, Row};
use crate::read::metadata::Metadata;
use crate::read::stream_table::StreamLag;

/// A snapshot of what a [`ReadOnlyLog`] has seen and read, for a monitoring system. From
/// [`ReadOnlyLog::metrics`].
///
/// Counts begin with 0 at each opening. With the feature `metrics`, the method `publish` passes a
/// snapshot on to the recorder of the crate of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadOnlyMetrics {
    /// The contents of the log, as of the last poll: [`Metadata::durable`] is the last record seen,
    /// and [`Metadata::position`] its end.
    pub metadata: Metadata,
    /// How far the last poll is behind the writer's watermark page. `None` where the page cannot
    /// be read, or is of a writer that the last poll did not see.
    pub lag: Option<ReaderLag>,
    /// Polls of the directory: by waiting streams, by [`ReadOnlyLog::refresh`], and by reads that
    /// found something unexpected.
    pub polls: u64,
    /// How many times the whole directory was scanned, the opening included.
    pub scans: u64,
    /// Reads of files for streams, of about a megabyte each. All streams share them.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Streams and callers of [`ReadOnlyLog::wait_durable`] that wait for records.
    pub waiting: usize,
    /// How far each [`LogStream`](crate::LogStream) lags that was not dropped, in no particular
    /// order: from what it has delivered to what the last poll saw.
    pub streams: Vec<StreamLag>,
}

/// How far a [`ReadOnlyLog`] is behind the process that writes the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderLag {
    /// Numbers from the last record seen to the last durable one.
    pub records: u64,
    /// Bytes from there to the end of the last durable commit unit, with headers and padding.
    pub bytes: u64,
}

impl ReadOnlyLog {
    /// Returns a snapshot of the reader's metrics, also after [`ReadOnlyLog::close`].
    ///
    /// The call reads 64 bytes of the writer's watermark page, which is in memory while there is a
    /// writer, and does no other I/O. It takes a step for each segment and stream, and allocates
    /// for the streams.
    ///
    /// A reader that nothing asks to poll does not follow the writer: then the lag grows.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Append, Log, ReadOnlyLog, Seq, Start};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("log");
    /// let writer = Log::open(&dir)?; // often in another process
    /// let reader = ReadOnlyLog::open(&dir)?;
    /// let stream = reader.stream(Start::Oldest)?;
    /// writer.write(Append::records(&["first", "second"]))?.blocking_wait()?;
    ///
    /// assert_eq!(reader.metrics().lag.map(|lag| lag.records), Some(2));
    /// reader.refresh()?;
    /// let metrics = reader.metrics();
    /// assert_eq!(metrics.lag.map(|lag| lag.records), Some(0));
    /// assert_eq!(metrics.metadata.durable, Seq(2));
    /// assert_eq!(metrics.streams[0].records, 2); // nothing was delivered
    /// # drop(stream);
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn metrics(&self) -> ReadOnlyMetrics {
        let log = &*self.log;
        let snapshot = log.snapshot();
        let metadata = self.storage().metadata();
        let (reads, read_bytes) = log.read_counts.get();
        ReadOnlyMetrics {
            lag: snapshot.behind().map(|(records, bytes)| ReaderLag { records, bytes }),
            polls: log.polls.load(Relaxed),
            scans: log.scans.load(Relaxed),
            reads,
            read_bytes,
            waiting: log.poller.waiters.waiting_readers(),
            streams: log.streams.lags(metadata.durable.0, metadata.position.0),
            metadata,
        }
    }
}

const ROWS: &[Row<ReadOnlyMetrics>] = &[
    ("esker_log_reader_polls_total", Counter, Count, "Polls of the directory.", |m| m.polls),
    ("esker_log_reader_scans_total", Counter, Count, "Scans of the whole directory.", |m| m.scans),
    ("esker_log_reader_reads_total", Counter, Count, "Reads of files for streams.", |m| m.reads),
    ("esker_log_reader_read_bytes_total", Counter, Bytes, "Bytes of these reads.", |m| {
        m.read_bytes
    }),
    ("esker_log_reader_seen", Gauge, Count, "Number of the last record seen.", |m| {
        m.metadata.durable.0
    }),
    ("esker_log_reader_waiting", Gauge, Count, "Callers and streams that wait for records.", |m| {
        m.waiting as u64
    }),
    ("esker_log_reader_streams", Gauge, Count, "Streams that were not dropped.", |m| {
        m.streams.len() as u64
    }),
    ("esker_log_reader_stream_lag_records", Gauge, Count, "Lag of the slowest stream.", |m| {
        StreamLag::most_records(&m.streams)
    }),
    ("esker_log_reader_stream_lag_bytes", Gauge, Bytes, "Lag of the slowest stream.", |m| {
        StreamLag::most_bytes(&m.streams)
    }),
];

/// Metrics that are absent while the lag is not known.
const LAG: &[Row<ReaderLag>] = &[
    ("esker_log_reader_lag_records", Gauge, Count, "Durable records not seen.", |lag| lag.records),
    ("esker_log_reader_lag_bytes", Gauge, Bytes, "Bytes of durable commits not seen.", |lag| {
        lag.bytes
    }),
];

impl ReadOnlyMetrics {
    /// Returns each metric with its name and value, for an exporter. Those of the lag are absent
    /// while it is not known.
    ///
    /// The chapter "Operating a log" of the book lists them. Later versions may add some.
    pub fn values(&self) -> Vec<MetricValue> {
        let mut values = metric_value::values(ROWS, self);
        values.extend(self.lag.iter().flat_map(|lag| metric_value::values(LAG, lag)));
        values
    }

    /// Passes the snapshot on to the global recorder of the crate [`metrics`], version 0.24, with
    /// these labels. Needs the feature `metrics`.
    ///
    /// `since` is the snapshot of this reader that was published before with the same labels:
    /// counters grow by the difference. Without it, everything counts since the log was opened.
    ///
    /// While the lag is not known, its gauges keep the value that they had. Allocates for the
    /// labels of each metric.
    #[cfg(feature = "metrics")]
    pub fn publish(&self, since: Option<&Self>, labels: &[(&str, &str)]) {
        let before = since.map(Self::values);
        let labels = metric_value::labels(labels);
        metric_value::publish(&self.values(), before.as_deref(), &labels);
    }
}
