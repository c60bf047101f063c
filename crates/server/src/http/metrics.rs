//! `GET /metrics`: all that is known, as OpenMetrics text.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::counters::{Counters, PROTOCOLS, STATUSES};
use crate::shared::Shared;

/// All metrics.
pub(crate) fn encode(shared: &Shared) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("esker");
    http(&mut registry, &shared.counters);
    oracle(&mut registry, shared);
    raft(&mut registry, shared);
    let mut encoded = String::new();
    text::encode(&mut encoded, &registry)?;
    Ok(encoded)
}

fn http(registry: &mut Registry, counters: &Counters) {
    let answers = Family::<[(&str, String); 1], Counter>::default();
    for (status, answered) in STATUSES.iter().zip(&counters.answers) {
        let status = if *status == 0 { "other".into() } else { status.to_string() };
        answers.get_or_create(&[("status", status)]).inc_by(answered.load(Relaxed));
    }
    registry.register("http_answers", "Answers to clients", answers);
    let requests = Family::<[(&str, &str); 1], Counter>::default();
    for (protocol, requested) in PROTOCOLS.iter().zip(&counters.requests) {
        requests.get_or_create(&[("protocol", *protocol)]).inc_by(requested.load(Relaxed));
    }
    registry.register("http_requests", "Requests of clients, by protocol", requests);
    registry.register_with_unit(
        "timestamp_latency",
        "Time of a request for timestamps, in the server",
        Unit::Seconds,
        counters.latency.clone(),
    );
    let open = counters.connections.load(Relaxed) as f64;
    gauge(registry, "http_connections", "Connections of clients", open);
    let open = counters.http3_connections.load(Relaxed) as f64;
    gauge(registry, "http3_connections", "Of these, over HTTP/3", open);
    let accepted = counters.accepted.load(Relaxed);
    counter(registry, "http_connections_accepted", "Connections that were accepted", accepted);
    let stalls = counters.disk_stalls.load(Relaxed);
    counter(registry, "disk_stalls", "Stalls of the disk while this node led", stalls);
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: f64) {
    let gauge = Gauge::<f64, AtomicU64>::default();
    gauge.set(value);
    registry.register(name, help, gauge);
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter: Counter = Counter::default();
    counter.inc_by(value);
    registry.register(name, help, counter);
}

fn oracle(registry: &mut Registry, shared: &Shared) {
    let stats = shared.oracle.stats();
    counter(registry, "requests", "Requests answered with timestamps", stats.requests);
    let leased = stats.leased;
    counter(registry, "requests_leased", "Of these, those under a lease, without a proof", leased);
    counter(registry, "timestamps", "Timestamps issued", stats.timestamps);
    counter(registry, "batches", "Batches of requests, with one proof each", stats.batches);
    counter(registry, "requests_late", "Requests without an answer in time", stats.timed_out);
    counter(registry, "epoch_advances", "Epochs of this process", stats.advances);
    let failed = stats.failed_advances;
    counter(registry, "epoch_advances_failed", "Advances of the epoch that failed", failed);
    let steps = Family::<[(&str, &str); 1], Counter>::default();
    steps.get_or_create(&[("direction", "backward")]).inc_by(stats.backward_steps);
    steps.get_or_create(&[("direction", "forward")]).inc_by(stats.forward_steps);
    registry.register("clock_steps", "Steps of the clock that were not followed", steps);
    let on = f64::from(u8::from(shared.epochs.with(esker_oracle::Epochs::lease_reads)));
    gauge(registry, "lease_reads", "1 if leaders answer under their lease", on);
    gauge(registry, "requests_waiting", "Requests that wait", shared.oracle.waiting() as f64);
    let epoch = Duration::from_nanos(shared.epochs.with(|epochs| epochs.last()));
    let now = Duration::from_nanos(shared.node.clock().now());
    let age = now.as_secs_f64() - epoch.as_secs_f64();
    gauge(registry, "epoch_age_seconds", "The clock, less the last epoch", age);
    let clock = shared.clock();
    let seconds = |ns: Option<u64>| ns.map_or(-1.0, |ns| Duration::from_nanos(ns).as_secs_f64());
    let help = "The furthest clock of another voter, as last compared; -1 if none was";
    gauge(registry, "clock_spread_seconds", help, seconds(clock.spread_ns));
    let help = "Of a leader: how far an epoch may be from the clocks of voters; -1 otherwise";
    gauge(registry, "clock_uncertainty_seconds", help, seconds(clock.uncertainty_ns));
    let help = "Of a leader: how much further ahead its clock is than epochs follow at once";
    gauge(registry, "clock_step_seconds", help, clock.step_ns as f64 / 1e9);
}

fn raft(registry: &mut Registry, shared: &Shared) {
    let status = shared.node.status();
    let mut set = |name: &str, help: &str, value: u64| gauge(registry, name, help, value as f64);
    set("leader", "1 if this node leads", u64::from(status.leads()));
    set("leader_id", "The node that leads, 0 if none is known", status.leader.unwrap_or(0));
    set("term", "The highest term, which rises with each election", status.term);
    set("members", "Nodes of the cluster", status.members.len() as u64);
    let help = "1 between the two steps of a change of the voters: both majorities are needed";
    set("members_joint", help, u64::from(status.is_joint));
    let help = "Of a leader: nodes whose logs were reverted in its term";
    set("members_reverted", help, status.reverted.len() as u64);
    set("log_last_index", "Index of the last entry", status.last.unwrap_or(0));
    set("log_applied_index", "Index of the last entry applied", status.applied.unwrap_or(0));
    let quorum = status.quorum_age.map_or(-1.0, |age| age.as_secs_f64());
    let help = "Of a leader: since a quorum acknowledged it; -1 otherwise";
    gauge(registry, "quorum_age_seconds", help, quorum);
    let wait = shared.node.disk_wait().unwrap_or_default().as_secs_f64();
    gauge(registry, "disk_wait_seconds", "How long the oldest entry waits for the disk", wait);
}
