//! Metrics, and a node that stops by itself.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use esker_raft::WallClock;

use crate::client::{Protocol, get, send};
use crate::nodes::{Nodes, TEST_TIMEOUT};

/// The value of this metric, with its labels.
async fn metric(address: &str, name: &str) -> f64 {
    let metrics = get(Protocol::Http1, address, "/metrics").await;
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {}", metrics.text())).parse().unwrap()
}

const HOUR_NS: u64 = 3_600_000_000_000;

/// Requests, batches, latencies, epochs, elections and steps of the clock are counted as they
/// happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_say_what_happened() {
    let mut nodes = Nodes::none();
    let (clock, begun) = (Arc::new(AtomicU64::new(450_000 * HOUR_NS)), Instant::now());
    let mut options = nodes.options(1);
    let now = Arc::clone(&clock);
    options.clock = WallClock::new(move || now.load(SeqCst) + begun.elapsed().as_nanos() as u64);
    options.oracle.epoch_interval = Duration::from_millis(1);
    nodes.start_with(1, options).await.unwrap();
    nodes.timestamp(1).await;
    let address = nodes.address(1);
    let all = [
        "esker_requests_total",
        "esker_timestamps_total",
        "esker_batches_total",
        "esker_timestamp_latency_seconds_count",
        "esker_http_answers_total{status=\"200\"}",
        "esker_http_answers_total{status=\"400\"}",
        "esker_http_answers_total{status=\"404\"}",
        "esker_http_answers_total{status=\"405\"}",
        "esker_http_connections_accepted_total",
    ];
    let mut before = Vec::new();
    for name in all {
        before.push(metric(&address, name).await);
    }
    for (path, status) in [
        ("/timestamp", 200),
        ("/timestamp?n=10", 200),
        ("/timestamp?n=0", 400),
        ("/nothing", 404),
        ("/cluster/add", 405),
        ("/cluster/remove", 405),
    ] {
        assert_eq!(get(Protocol::Http2, &address, path).await.status, status, "{path}");
    }
    let own = all.len() as f64;
    // Reading a metric is an answer and a connection of its own.
    let grown = [2.0, 11.0, 2.0, 2.0, 2.0 + own, 1.0, 1.0, 2.0, 6.0 + own];
    for ((name, before), grown) in all.iter().zip(before).zip(grown) {
        assert_eq!(metric(&address, name).await - before, grown, "{name}");
    }
    for (name, value) in [
        ("esker_leader", 1.0),
        ("esker_leader_id", 1.0),
        ("esker_members", 1.0),
        ("esker_members_joint", 0.0),
        ("esker_requests_waiting", 0.0),
        ("esker_requests_late_total", 0.0),
        ("esker_disk_stalls_total", 0.0),
        ("esker_clock_steps_total{direction=\"backward\"}", 0.0),
        ("esker_clock_steps_total{direction=\"forward\"}", 0.0),
    ] {
        assert_eq!(metric(&address, name).await, value, "{name}");
    }
    assert!(metric(&address, "esker_http_connections").await >= 1.0);
    assert!(metric(&address, "esker_term").await >= 1.0);
    assert!(metric(&address, "esker_epoch_advances_total").await >= 1.0);
    let last = metric(&address, "esker_log_last_index").await;
    assert_eq!(metric(&address, "esker_log_applied_index").await, last);
    // The epoch is of the node's clock, and so is its age.
    assert!((0.0..60.0).contains(&metric(&address, "esker_epoch_age_seconds").await));
    // Back, and there for some epochs: one step. Then forward.
    for (hours, backward, forward) in [(449_999, 1.0, 0.0), (450_001, 1.0, 1.0)] {
        clock.store(hours * HOUR_NS, SeqCst);
        let advances = metric(&address, "esker_epoch_advances_total").await;
        while metric(&address, "esker_epoch_advances_total").await < advances + 3.0 {
            nodes.timestamp(1).await;
        }
        for (direction, steps) in [("backward", backward), ("forward", forward)] {
            let name = format!("esker_clock_steps_total{{direction=\"{direction}\"}}");
            assert_eq!(metric(&address, &name).await, steps, "{name} at {hours}");
        }
    }
    nodes.stop(1).await;
    // An election.
    let term = {
        nodes.start(1).await.unwrap();
        nodes.timestamp(1).await;
        metric(&address, "esker_term").await
    };
    nodes.stop(1).await;
    nodes.start(1).await.unwrap();
    nodes.timestamp(1).await;
    assert!(metric(&address, "esker_term").await > term);
}

/// The disk, the certificate, the program and the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_show_what_the_node_runs_on() {
    let nodes = Nodes::start_all(1).await;
    nodes.timestamp(1).await;
    let address = nodes.address(1);
    let syncs = metric(&address, "esker_log_sync_duration_seconds_count").await;
    assert!(syncs >= 1.0 && metric(&address, "esker_log_sync_duration_seconds_sum").await > 0.0);
    // Some of the next ones are between the two.
    let all = "esker_log_sync_duration_seconds_bucket{le=\"+Inf\"}";
    assert!(metric(&address, all).await >= syncs);
    assert!(metric(&address, "esker_log_syncs_total").await >= syncs);
    for name in [
        "esker_log_records_total",
        "esker_log_payload_bytes_total",
        "esker_log_commits_total",
        "esker_log_commit_bytes_total",
        "esker_log_disk_bytes",
        "esker_log_memory_bytes",
        "esker_log_segments",
        "process_cpu_seconds_total",
    ] {
        assert!(metric(&address, name).await > 0.0, "{name}");
    }
    let wanted = metric(&address, "esker_log_reserve_wanted_bytes").await;
    assert!(wanted > 0.0);
    assert_eq!(metric(&address, "esker_log_reserve_bytes").await, wanted);
    assert!(metric(&address, "process_resident_memory_bytes").await > 1e6);
    let build = format!("esker_build_info{{version=\"{}\"}}", nodes.status(1).await.version);
    assert_eq!(metric(&address, &build).await, 1.0);
    // Of 180 days.
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let left = metric(&address, "esker_certificate_expiry_seconds").await - now;
    assert!((179.0..181.0).contains(&(left / 86_400.0)), "{left}");

    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let started = now - metric(&address, "process_start_time_seconds").await;
    assert!((-2.0..3600.0).contains(&started), "{started}");
    let open = metric(&address, "process_open_fds").await;
    assert!(open > 3.0 && open < metric(&address, "process_max_fds").await, "{open}");

    let headers = [("accept", "application/openmetrics-text")];
    let metrics = send(Protocol::Http1, &address, "GET", "/metrics", &headers, b"").await;
    assert!(metrics.text().ends_with("# EOF\n"));
    assert!(!metrics.text().contains("esker_spans_lost"), "no spans are sent");
    // Each line is read alone.
    assert!(!metrics.text().contains("Of these"));
    let types = metrics.text().lines().filter_map(|line| line.strip_prefix("# TYPE "));
    for name in types.filter_map(|line| line.split(' ').next()) {
        for unit in ["seconds", "bytes"] {
            let is_said = metrics.text().contains(&format!("# UNIT {name} {unit}\n"));
            assert_eq!(is_said, name.ends_with(unit), "{name}");
        }
    }
}

/// A client of the older text format got a format that it did not ask for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_have_the_format_that_is_asked_for() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    for (accept, kind, name) in [
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4", "esker_timestamps_total"),
        (prometheus, "application/openmetrics-text; version=1.0.0", "esker_timestamps"),
        ("*/*", "text/plain; version=0.0.4", "esker_timestamps_total"),
        // `curl ... | promtool check metrics` reads the older text alone.
        ("", "text/plain; version=0.0.4", "esker_timestamps_total"),
    ] {
        let headers = [("accept", accept)];
        let headers = if accept.is_empty() { &[][..] } else { &headers };
        let metrics = send(Protocol::Http1, &address, "GET", "/metrics", headers, b"").await;
        let found = metrics.header("content-type").unwrap();
        assert!(found.starts_with(kind), "{accept}: {found}");
        assert!(metrics.text().contains(&format!("# TYPE {name} counter\n")), "{accept}");
        assert!(metrics.text().contains("\nesker_timestamps_total 0\n"), "{accept}");
    }
}

/// A node whose epoch does not advance stops, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_epoch_does_not_advance_stops() {
    let nodes = Nodes::with(1, |options| {
        options.oracle.patience = Duration::from_millis(50);
        options.oracle.failed_advances = 3;
    })
    .await;
    nodes.timestamp(1).await;
    let stalled = nodes.stall(1).await;
    let address = nodes.address(1);
    let asked = async {
        loop {
            get(Protocol::Http1, &address, "/timestamp").await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let failed = async {
        tokio::select! { why = nodes.servers[&1].failed() => why, () = asked => panic!() }
    };
    let why = tokio::time::timeout(TEST_TIMEOUT, failed).await.unwrap();
    assert!(why.to_string().contains("EPOCH_DEADLINE_LIMIT"), "{why}");
    assert!(metric(&address, "esker_epoch_advances_failed_total").await >= 3.0);
    drop(stalled);
}
