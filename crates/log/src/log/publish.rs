//! Passes snapshots on to the recorder of the crate `metrics`.

use metrics::{Unit, histogram};

use crate::base::metric_value;
use crate::log::metrics::LogMetrics;

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
        let labels = metric_value::labels(labels);
        let since = since.filter(|since| self.is_of_the_same_opening(since));
        if since.is_none() {
            let description = "Durations of the syncs of commits.";
            metrics::describe_histogram!(SYNC_DURATION, Unit::Seconds, description);
        }
        let before = since.map(Self::values);
        metric_value::publish(&self.values(), before.as_deref(), &labels);
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
