//! Registration of metrics: each has a name, a description, and a unit if it has one.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};

/// The metrics of one answer. The unit becomes the end of a name.
#[derive(Debug)]
pub(crate) struct Families(Registry);

impl Families {
    /// Creates metrics whose names begin with `esker_`.
    pub(crate) fn with_esker_prefix() -> Self {
        Self(Registry::with_prefix("esker"))
    }

    /// Creates the metrics that every process has, whose names begin with `process_`.
    pub(crate) fn with_process_prefix() -> Self {
        Self(Registry::with_prefix("process"))
    }

    pub(crate) fn encode(&self, out: &mut String) -> fmt::Result {
        text::encode_registry(out, &self.0)
    }

    pub(crate) fn any(&mut self, name: &str, help: &str, metric: impl Metric) {
        self.0.register(name, help, metric);
    }

    pub(crate) fn any_seconds(&mut self, name: &str, help: &str, metric: impl Metric) {
        self.0.register_with_unit(name, help, Unit::Seconds, metric);
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.0.register(name, help, gauge(value));
    }

    /// Adds a gauge for each value of a label.
    pub(crate) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        let family = Family::<[(&str, &str); 1], Gauge<f64, AtomicU64>>::default();
        for (value, number) in values {
            family.get_or_create(&[(label, value)]).set(number as f64);
        }
        self.0.register(name, help, family);
    }

    pub(crate) fn seconds(&mut self, name: &str, help: &str, value: f64) {
        self.0.register_with_unit(name, help, Unit::Seconds, gauge(value));
    }

    pub(crate) fn bytes(&mut self, name: &str, help: &str, value: u64) {
        self.0.register_with_unit(name, help, Unit::Bytes, gauge(value as f64));
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.0.register(name, help, counter(value));
    }

    pub(crate) fn bytes_counter(&mut self, name: &str, help: &str, value: u64) {
        self.0.register_with_unit(name, help, Unit::Bytes, counter(value));
    }

    pub(crate) fn seconds_counter(&mut self, name: &str, help: &str, value: f64) {
        let counter = Counter::<f64, AtomicU64>::default();
        counter.inc_by(value);
        self.0.register_with_unit(name, help, Unit::Seconds, counter);
    }

    /// Adds a counter for each value of a label.
    pub(crate) fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: impl IntoIterator<Item = (String, u64)>,
    ) {
        let family = Family::<[(&str, String); 1], Counter>::default();
        for (value, count) in values {
            family.get_or_create(&[(label, value)]).inc_by(count);
        }
        self.0.register(name, help, family);
    }

    /// Adds a counter for each pair of values of two labels.
    pub(crate) fn counters_by(
        &mut self,
        name: &str,
        help: &str,
        [first, second]: [&'static str; 2],
        values: impl IntoIterator<Item = (&'static str, &'static str, u64)>,
    ) {
        let family = Family::<[(&str, &str); 2], Counter>::default();
        for (one, other, count) in values {
            family.get_or_create(&[(first, one), (second, other)]).inc_by(count);
        }
        self.0.register(name, help, family);
    }
}

fn gauge(value: f64) -> Gauge<f64, AtomicU64> {
    let gauge = Gauge::default();
    gauge.set(value);
    gauge
}

fn counter(value: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(value);
    counter
}

/// A histogram with its buckets, counted elsewhere.
#[derive(Debug)]
pub(crate) struct HistogramSnapshot {
    sum: f64,
    buckets: Vec<(f64, u64)>,
}

impl HistogramSnapshot {
    /// Creates a histogram of the upper end of each bucket, and the number of values in it alone.
    /// The last end is [`f64::MAX`].
    pub(crate) fn new(sum: f64, buckets: Vec<(f64, u64)>) -> Self {
        debug_assert!(buckets.is_sorted_by(|(end, _), (next, _)| end < next), "buckets rise");
        debug_assert!(buckets.last().is_some_and(|(end, _)| *end == f64::MAX), "and have no end");
        Self { sum, buckets }
    }
}

impl EncodeMetric for HistogramSnapshot {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let count = self.buckets.iter().map(|(_, count)| count).sum();
        let none = None::<&HashMap<usize, Exemplar<NoLabelSet, f64>>>;
        encoder.encode_histogram::<NoLabelSet>(self.sum, count, &self.buckets, none)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
