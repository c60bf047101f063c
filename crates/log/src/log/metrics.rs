//! Metrics of an open log.

use crate::log::Log;
use crate::log::stats::LogStats;
use crate::read::metadata::Metadata;
use crate::read::stream_table::StreamLag;
use crate::runtime::histogram::DurationHistogram;

/// A snapshot of what this process did with a log since it opened it, and of the log's state, for a
/// monitoring system. From [`Log::metrics`].
///
/// Counts begin with 0 at each opening. With the feature `metrics`, the method `publish` passes a
/// snapshot on to the recorder of the crate of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogMetrics {
    /// Counts of what was appended and committed, and what is pending. As [`Log::stats`].
    pub stats: LogStats,
    /// The contents of the log: segments, and their size on disk. As
    /// [`Storage::metadata`](crate::Storage::metadata).
    pub metadata: Metadata,
    /// How long the syncs of commits took, writes through O_DSYNC included. There are
    /// [`LogStats::syncs`] of them. A sync that failed is not counted.
    pub sync_durations: DurationHistogram,
    /// How far each [`LogStream`](crate::LogStream) of this log lags that was not dropped, in no
    /// particular order. Those of a [`ReadOnlyLog`](crate::ReadOnlyLog) are in its own metrics.
    pub streams: Vec<StreamLag>,
    /// Bytes on disk that the reserve holds, so that a log on a full disk can be opened, closed and
    /// truncated.
    pub reserve_bytes: u64,
    /// Bytes that the reserve is to hold. While it holds much less, the disk is full, and
    /// appending returns [`Error::NoSpace`](crate::Error::NoSpace).
    pub reserve_wanted_bytes: u64,
    /// Files that left the log and wait to be reused, each as large as a segment.
    pub spare_segments: usize,
}

impl Log {
    /// Returns a snapshot of the log's metrics, also after a failure and after [`Log::close`].
    ///
    /// The call does no I/O, and a hanging disk does not block it. It takes microseconds, and a
    /// step for each waiting caller, segment and stream; it allocates for the last two. Appenders
    /// wait for it only while it copies the counters under their lock. Appends and commits count
    /// whether or not it is called.
    ///
    /// Each number is that of one moment, but not all are of the same: commits continue meanwhile.
    ///
    /// # Durability
    /// None. Nothing is stored: all counts begin with 0 when the log is opened.
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Append, Log, Start};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let stream = log.stream(Start::Oldest)?;
    /// log.write(Append::records(&["first", "second"]))?.blocking_wait()?;
    ///
    /// let metrics = log.metrics();
    /// assert_eq!((metrics.stats.appended, metrics.stats.payload_bytes), (2, 11));
    /// assert_eq!(metrics.streams[0].records, 2); // nothing was delivered
    /// if let Some(slow) = metrics.sync_durations.quantile(0.99) {
    ///     println!("99 of 100 syncs took at most {slow:?}");
    /// }
    /// # drop(stream);
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn metrics(&self) -> LogMetrics {
        let write = &*self.write;
        let metadata = self.storage().metadata();
        let sync_durations = write.counters.sync_durations();
        let mut stats = self.stats();
        stats.syncs = sync_durations.count();
        LogMetrics {
            stats,
            sync_durations,
            streams: self.read.streams.lags(metadata.durable.0, metadata.position.0),
            reserve_bytes: write.space.reserve_bytes(),
            reserve_wanted_bytes: write.options.reserve_bytes(),
            spare_segments: write.space.spare_count(),
            metadata,
        }
    }
}
