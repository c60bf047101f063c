//! A recorder gets every metric that the book lists, with labels. Its counters grow by the
//! difference to the last publication.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use esker_log::{Log, LogMetrics, ReadOnlyLog, ReadOnlyMetrics, Start};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Recorder,
    SharedString, Unit, with_local_recorder,
};

use crate::fixture::{DIR, append, driven, log};

/// By name and labels.
type Values = Arc<Mutex<BTreeMap<String, f64>>>;

/// A recorder that keeps the sum or the last value of each metric. A histogram counts.
#[derive(Default)]
struct Recorded {
    values: Values,
    described: Mutex<BTreeMap<String, Option<Unit>>>,
}

struct Metric(String, Values);

impl Metric {
    fn register(recorded: &Recorded, key: &Key) -> Arc<Self> {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = format!("{}{}", key.name(), labels.collect::<String>());
        Arc::new(Self(name, Arc::clone(&recorded.values)))
    }

    fn change(&self, change: impl FnOnce(f64) -> f64) {
        let mut values = self.1.lock().unwrap();
        let value = values.entry(self.0.clone()).or_default();
        *value = change(*value);
    }
}

impl CounterFn for Metric {
    fn increment(&self, value: u64) {
        self.change(|sum| sum + value as f64);
    }

    fn absolute(&self, value: u64) {
        self.change(|_| value as f64);
    }
}

impl GaugeFn for Metric {
    fn increment(&self, value: f64) {
        self.change(|sum| sum + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|sum| sum - value);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        assert!(value > 0.0);
        self.change(|count| count + 1.0);
    }
}

impl Recorded {
    fn describe(&self, key: &KeyName, unit: Option<Unit>) {
        self.described.lock().unwrap().insert(key.as_str().into(), unit);
    }

    fn value(&self, name: &str) -> u64 {
        let values = self.values.lock().unwrap();
        let value = values.get(&format!("{name} log=orders"));
        *value.unwrap_or_else(|| panic!("no {name} in {values:?}")) as u64
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&key, unit);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&key, unit);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&key, unit);
    }

    fn register_counter(&self, key: &Key, _: &metrics::Metadata<'_>) -> Counter {
        Counter::from_arc(Metric::register(self, key))
    }

    fn register_gauge(&self, key: &Key, _: &metrics::Metadata<'_>) -> Gauge {
        Gauge::from_arc(Metric::register(self, key))
    }

    fn register_histogram(&self, key: &Key, _: &metrics::Metadata<'_>) -> Histogram {
        Histogram::from_arc(Metric::register(self, key))
    }
}

fn publish(recorded: &Recorded, log: &Log, since: Option<&LogMetrics>) -> LogMetrics {
    let metrics = log.metrics();
    with_local_recorder(recorded, || metrics.publish(since, &[("log", "orders")]));
    metrics
}

#[test]
fn counters_grow_by_what_happened_since() {
    let recorded = Recorded::default();
    let (log, disk, _) = log();
    append(&log, 10);
    let first = publish(&recorded, &log, None);
    assert_eq!(recorded.value("esker_log_records_total"), 10);
    append(&log, 5);
    let second = publish(&recorded, &log, Some(&first));
    let all = || {
        let names = ["records_total", "commits_total", "syncs_total", "sync_duration_seconds"];
        names.map(|name| recorded.value(&format!("esker_log_{name}")))
    };
    assert_eq!(all(), [15; 4]);
    assert_eq!(recorded.value("esker_log_payload_bytes_total"), second.stats.payload_bytes);
    assert_eq!(recorded.value("esker_log_commit_bytes_total"), second.stats.bytes);
    // Nothing happened since.
    let third = publish(&recorded, &log, Some(&second));
    assert_eq!(all(), [15; 4]);
    log.close().unwrap();

    // Counts of the log begin again with an opening. Those of the recorder do not.
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    append(&log, 2);
    publish(&recorded, &log, Some(&third));
    assert_eq!(all(), [17; 4]);
    log.close().unwrap();
}

#[test]
fn gauges_have_the_values_of_the_snapshot() {
    let recorded = Recorded::default();
    let (log, _, _) = log();
    append(&log, 10);
    let streams =
        [Start::After(4.into()), Start::Tip, Start::Oldest].map(|start| log.stream(start));
    log.append(b"pending").unwrap().detach();
    let metrics = publish(&recorded, &log, None);
    let value = |name: &str| recorded.value(&format!("esker_log_{name}"));
    assert_eq!((value("durable"), value("pending_records")), (10, 1));
    assert_eq!((value("streams"), value("stream_lag_records")), (3, 10));
    let most = metrics.streams.iter().map(|lag| lag.bytes).max();
    assert_eq!(Some(value("stream_lag_bytes")), most);
    assert_eq!(value("reserve_bytes"), metrics.reserve_bytes);
    assert_eq!(value("disk_bytes"), metrics.metadata.disk_bytes);
    drop(streams);
    publish(&recorded, &log, Some(&metrics));
    assert_eq!((value("streams"), value("stream_lag_records")), (0, 0));
    log.close().unwrap();
}

#[test]
fn the_book_lists_every_metric() {
    let recorded = Recorded::default();
    let (log, disk, _) = log();
    append(&log, 1);
    publish(&recorded, &log, None);
    let reader = ReadOnlyLog::builder(DIR).options(driven(&disk).0).open().unwrap();
    with_local_recorder(&recorded, || reader.metrics().publish(None, &[("log", "orders")]));
    let published: Vec<_> = recorded.values.lock().unwrap().keys().cloned().collect();
    let described = recorded.described.lock().unwrap();
    let expected: Vec<_> = described.keys().map(|name| format!("{name} log=orders")).collect();
    assert_eq!(published, expected);
    assert!(described.values().all(Option::is_some), "units");
    let book = include_str!("../../../../../docs/src/operations.md");
    let rows = book.lines().filter_map(|line| line.strip_prefix("| `esker_log_"));
    let mut listed: Vec<_> = rows.map(|row| row.split('`').next().unwrap()).collect();
    listed.sort_unstable();
    let names = described.keys().map(|name| name.strip_prefix("esker_log_").unwrap());
    assert_eq!(listed, names.collect::<Vec<_>>());
    log.close().unwrap();
}

/// Counters that a reader publishes grow as the writer's do, and have names of their own.
#[test]
fn a_reader_publishes_what_happened_since() {
    let recorded = Recorded::default();
    let (log, disk, _) = log();
    append(&log, 10);
    let reader = ReadOnlyLog::builder(DIR).options(driven(&disk).0).open().unwrap();
    let publish = |since: Option<&ReadOnlyMetrics>| {
        let metrics = reader.metrics();
        with_local_recorder(&recorded, || metrics.publish(since, &[("log", "orders")]));
        metrics
    };
    let value = |name: &str| recorded.value(&format!("esker_log_reader_{name}"));
    let mut last = publish(None);
    assert_eq!((value("seen"), value("lag_records"), value("scans_total")), (10, 0, 1));
    for polls in 1..=3 {
        append(&log, 2);
        last = publish(Some(&last));
        assert_eq!(value("lag_records"), 2);
        reader.refresh().unwrap();
        last = publish(Some(&last));
        assert_eq!((value("polls_total"), value("scans_total")), (polls, 1));
        assert_eq!((value("seen"), value("lag_records")), (10 + 2 * polls, 0));
    }
    log.close().unwrap();
}
