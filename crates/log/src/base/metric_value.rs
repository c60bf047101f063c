//! Metrics by name: one list for every recorder and exporter.

#[cfg(feature = "metrics")]
use metrics::{Label, SharedString, Unit};

/// A metric with its value, of a snapshot such as [`LogMetrics`](crate::LogMetrics).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricValue {
    /// The name, for example `esker_log_payload_bytes_total`. That of a counter ends in `_total`,
    /// after the unit, if that is not a count.
    pub name: &'static str,
    /// One sentence.
    pub description: &'static str,
    /// Whether it counts.
    pub kind: MetricKind,
    /// The unit of the value.
    pub unit: MetricUnit,
    /// The value.
    pub value: u64,
}

/// How a metric changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// It begins with 0 at each opening, and grows.
    Counter,
    /// It grows and shrinks.
    Gauge,
}

/// The unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    /// A number of something, or a sequence number.
    Count,
    /// Bytes.
    Bytes,
}

/// A metric in a table: its name, kind, unit and description, and how to get its value.
pub(crate) type Row<M> = (&'static str, MetricKind, MetricUnit, &'static str, fn(&M) -> u64);

/// The values of a table.
pub(crate) fn values<M>(rows: &[Row<M>], of: &M) -> Vec<MetricValue> {
    let value = |&(name, kind, unit, description, value): &Row<M>| MetricValue {
        name,
        description,
        kind,
        unit,
        value: value(of),
    };
    rows.iter().map(value).collect()
}

/// The labels of one snapshot.
#[cfg(feature = "metrics")]
pub(crate) fn labels(labels: &[(&str, &str)]) -> Vec<Label> {
    let owned = |text: &str| SharedString::from_owned(text.to_owned());
    labels.iter().map(|(key, value)| Label::new(owned(key), owned(value))).collect()
}

/// Passes values on to the global recorder. Counters grow by the difference to `since`, the values
/// of the snapshot before; without one, the metrics are described, too.
#[cfg(feature = "metrics")]
pub(crate) fn publish(now: &[MetricValue], since: Option<&[MetricValue]>, labels: &[Label]) {
    for &MetricValue { name, description, kind, unit, value } in now {
        let unit = match unit {
            MetricUnit::Count => Unit::Count,
            MetricUnit::Bytes => Unit::Bytes,
        };
        match kind {
            MetricKind::Counter => {
                if since.is_none() {
                    metrics::describe_counter!(name, unit, description);
                }
                let before = since.into_iter().flatten().find(|before| before.name == name);
                let grown = value.saturating_sub(before.map_or(0, |before| before.value));
                metrics::counter!(name, labels.iter()).increment(grown);
            }
            MetricKind::Gauge => {
                if since.is_none() {
                    metrics::describe_gauge!(name, unit, description);
                }
                metrics::gauge!(name, labels.iter()).set(value as f64);
            }
        }
    }
}
