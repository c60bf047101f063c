//! Metrics of the node: `GET /metrics`, in the text format of Prometheus, or as OpenMetrics for
//! clients that ask for it.

mod families;
mod log_metrics;
mod plain_text;
mod process_metrics;

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::header::HeaderMap;
use prometheus_client::metrics::info::Info;

use crate::counters::{Counters, PROTOCOLS, STATUSES};
use crate::error::BrokenInvariant;
use crate::http::answer::{self, Answer};
use crate::http::client_connection::ClientConnection;
use crate::http::metrics::families::Families;
use crate::identity::Identity;
use crate::memory_budget::ANSWER_BYTES_MAX;
use crate::node_state::NodeState;

/// The longest text of all metrics.
const METRICS_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(METRICS_BYTES_MAX < ANSWER_BYTES_MAX, "a connection has memory for metrics");

/// Whether a client prefers the text format of Prometheus to OpenMetrics.
pub(crate) fn prefers_plain(headers: &HeaderMap) -> bool {
    plain_text::is_preferred(headers)
}

/// Answers `GET /metrics`.
pub(crate) async fn answer(state: &NodeState, client: &ClientConnection, is_plain: bool) -> Answer {
    // Acquired before the text is built.
    let Ok(permit) = client.permit_answer(METRICS_BYTES_MAX).await else { return answer::busy() };
    let Ok(open_metrics) = encode(state) else {
        return answer::internal(state.failures(), BrokenInvariant("metrics are encoded as text"));
    };
    let text = match is_plain {
        true => plain_text::from_open_metrics(&open_metrics),
        false => open_metrics,
    };
    debug_assert!(text.len() <= METRICS_BYTES_MAX, "{} bytes of metrics", text.len());
    answer::metrics(text, is_plain, permit)
}

/// Encodes all metrics as OpenMetrics.
fn encode(state: &NodeState) -> Result<String, fmt::Error> {
    let mut families = Families::with_esker_prefix();
    families.any("build", "The program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
    let Identity { cluster, node, .. } = state.identity();
    let labels = [("cluster", cluster.to_string()), ("node", node.to_string())];
    families.any("cluster", "The cluster of this node", Info::new(labels));
    add_http(&mut families, state.counters());
    if let Some(ends) = state.caller().certificate_ends() {
        let help = "When the certificate for other nodes ends, in seconds since 1970";
        families.seconds("peer_certificate_expiry", help, ends as f64);
    }
    let denied = state.change_access().denied().map(|(reason, count)| (reason.into(), count));
    let help = "Changes of the cluster whose caller may not make them";
    families.counters("changes_denied", help, "reason", denied);
    let help =
        "Connections that were closed because requests waited for the memory of their answers";
    families.counter("http_connections_evicted", help, state.memory().evictions());
    add_oracle(&mut families, state);
    add_raft(&mut families, state);
    log_metrics::register(&mut families, &state.node().log().maintenance().log_metrics());
    let mut encoded = String::new();
    families.encode(&mut encoded)?;
    let mut families = Families::with_process_prefix();
    process_metrics::register(&mut families);
    families.encode(&mut encoded)?;
    encoded.push_str("# EOF\n");
    Ok(encoded)
}

fn add_http(families: &mut Families, counters: &Counters) {
    let answers = STATUSES.iter().zip(&counters.answers).map(|(status, answered)| {
        let status = if *status == 0 { "other".into() } else { status.to_string() };
        (status, answered.load(Relaxed))
    });
    families.counters("http_answers", "Answers to clients, by status", "status", answers);
    let requests = PROTOCOLS.iter().zip(&counters.requests);
    let requests = requests.map(|(protocol, count)| ((*protocol).into(), count.load(Relaxed)));
    families.counters("http_requests", "Requests of clients, by protocol", "protocol", requests);
    let help = "Time of a request for timestamps, in the server";
    families.any_seconds("timestamp_latency", help, counters.latency.clone());
    let open = counters.connections.load(Relaxed) as f64;
    families.gauge("http_connections", "Connections of clients, over all protocols", open);
    let open = counters.http3_connections.load(Relaxed) as f64;
    families.gauge("http3_connections", "Connections of clients over HTTP/3", open);
    let accepted = counters.accepted.load(Relaxed);
    let help = "Connections of clients that were accepted";
    families.counter("http_connections_accepted", help, accepted);
    let over_limit = counters.over_limit.load(Relaxed);
    let help = "Connections of clients beyond the limit, which get no timestamps";
    families.counter("http_connections_over_limit", help, over_limit);
    let stalls = counters.disk_stalls.load(Relaxed);
    families.counter("disk_stalls", "Stalls of the disk while this node led", stalls);
    let failed = counters.failed_tasks.load(Relaxed);
    let help = "Tasks that panicked, or ended although the node runs";
    families.counter("tasks_failed", help, failed);
    if let ends @ 1.. = counters.certificate_ends.load(Relaxed) {
        let help = "When the certificate for clients ends, in seconds since 1970";
        families.seconds("certificate_expiry", help, ends as f64);
    }
    let failing = counters.reload_failures.all().map(|(file, failing)| (file, u64::from(failing)));
    let help = "1 while a node cannot use the present contents of its files";
    families.gauges("reload_failing", help, "file", failing);
    let help = "Connections that TLS refused, by port and reason";
    families.counters_by("tls_refused", help, ["port", "reason"], counters.tls_refusals.counts());
    if let Some(lost) = &counters.spans_lost {
        let help = "Spans that were dropped, or that the collector did not take";
        families.counter("spans_lost", help, lost.load(Relaxed));
    }
}

fn add_oracle(families: &mut Families, state: &NodeState) {
    let stats = state.oracle().stats();
    families.counter("requests", "Requests answered with timestamps", stats.requests);
    let help = "Requests answered under a lease, without a proof";
    families.counter("requests_leased", help, stats.leased);
    families.counter("timestamps", "Timestamps issued", stats.timestamps);
    families.counter("batches", "Batches of requests, with one proof each", stats.batches);
    let help = "Requests for timestamps without an answer in time";
    families.counter("requests_late", help, stats.timed_out);
    families.counter("epoch_advances", "Epochs of this process", stats.advances);
    let failed = stats.failed_advances;
    families.counter("epoch_advances_failed", "Advances of the epoch that failed", failed);
    let steps = [("backward", stats.backward_steps), ("forward", stats.forward_steps)];
    let steps = steps.map(|(direction, count)| (direction.into(), count));
    let help = "Steps of the clock that were not followed";
    families.counters("clock_steps", help, "direction", steps);
    let on = f64::from(u8::from(state.lease_reads()));
    families.gauge("lease_reads", "1 if leaders answer under their lease", on);
    let waiting = state.oracle().waiting() as f64;
    families.gauge("requests_waiting", "Requests for timestamps that wait", waiting);
    let epoch = Duration::from_nanos(state.last_epoch());
    let now = Duration::from_nanos(state.node().clock().now());
    let age = now.as_secs_f64() - epoch.as_secs_f64();
    families.seconds("epoch_age", "The clock of this node, less the last epoch", age);
    let clock = state.clock();
    let seconds = |ns: Option<u64>| ns.map_or(-1.0, |ns| Duration::from_nanos(ns).as_secs_f64());
    let help = "The furthest clock of another voter, as last compared; -1 if none was";
    families.seconds("clock_spread", help, seconds(clock.spread_ns));
    let help = "Of a leader: how far an epoch may be from the clocks of voters; -1 otherwise";
    families.seconds("clock_uncertainty", help, seconds(clock.uncertainty_ns));
    let help = "Of a leader: how much further ahead its clock is than epochs follow at once";
    families.seconds("clock_step", help, clock.step_ns as f64 / 1e9);
}

fn add_raft(families: &mut Families, state: &NodeState) {
    let status = state.node().status();
    let mut set = |name: &str, help: &str, value: u64| families.gauge(name, help, value as f64);
    set("leader", "1 if this node leads", u64::from(status.leads()));
    set("leader_id", "The node that leads, 0 if none is known", status.leader.unwrap_or(0));
    set("term", "The highest term, which rises with each election", status.term);
    set("members", "Nodes of the cluster", status.members.len() as u64);
    let help = "1 between the two steps of a change of the voters: both majorities are needed";
    set("members_joint", help, u64::from(status.is_joint));
    let help = "Of a leader: nodes whose logs were reverted in its term";
    set("members_reverted", help, status.reverted.len() as u64);
    set("log_last_index", "Index of the last Raft entry", status.last.unwrap_or(0));
    let help = "Index of the last Raft entry that was applied";
    set("log_applied_index", help, status.applied.unwrap_or(0));
    let quorum = status.quorum_age.map_or(-1.0, |age| age.as_secs_f64());
    let help = "Of a leader: time since a quorum acknowledged it; -1 otherwise";
    families.seconds("quorum_age", help, quorum);
    let wait = state.node().disk_wait().unwrap_or(Duration::ZERO).as_secs_f64();
    families.seconds("disk_wait", "How long the oldest entry has waited for the disk", wait);
}
