//! Tasks of a node that panic.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use esker_raft::WallClock;
use esker_server::ask;

use crate::client::{Protocol, get};
use crate::nodes::{Nodes, TEST_TIMEOUT};

/// Nodes, of which the first has a clock that panics while the flag is set.
async fn nodes(count: u64) -> (Nodes, Arc<AtomicBool>) {
    let mut nodes = Nodes::none();
    let panics = Arc::new(AtomicBool::new(false));
    for node in 1..=count {
        let mut options = nodes.options(node);
        // A busy machine has no elections.
        options.round_trip = Duration::from_millis(200);
        if node == 1 {
            let panics = Arc::clone(&panics);
            options.clock = WallClock::new(move || {
                assert!(!panics.load(SeqCst), "as a bug would");
                WallClock::default().now()
            });
        }
        nodes.start_with(node, options).await.unwrap();
    }
    assert_eq!(nodes.wait_for_voters(count as usize).await, 1);
    (nodes, panics)
}

async fn failed_tasks(address: &str) -> String {
    let metrics = get(Protocol::Http1, address, "/metrics").await;
    let failed =
        metrics.text().lines().find_map(|line| line.strip_prefix("esker_tasks_failed_total "));
    failed.unwrap().to_owned()
}

/// The task that issues timestamps panicked when it formatted a clock before 1970. The node went on
/// leading, said that it was ready, and issued nothing, for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_issuing_task_panics_stops_and_another_one_leads() {
    let (mut nodes, panics) = nodes(3).await;
    let first = nodes.timestamp(1).await;
    let address = nodes.address(1);
    assert_eq!(get(Protocol::Http1, &address, "/ready").await.status, 200);
    assert_eq!(failed_tasks(&address).await, "0");
    panics.store(true, SeqCst);
    let asked = async {
        loop {
            drop(ask(&address, "/timestamp", None, TEST_TIMEOUT).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let failed = async {
        tokio::select! { why = nodes.servers[&1].failed() => why, () = asked => panic!() }
    };
    let why = tokio::time::timeout(TEST_TIMEOUT, failed).await.unwrap();
    panics.store(false, SeqCst);
    assert!(why.to_string().contains("\"issue timestamps\""), "{why}");
    let ready = get(Protocol::Http1, &address, "/ready").await;
    assert_eq!(ready.status, 500);
    assert!(ready.text().contains("the oracle has stopped"), "{}", ready.text());
    assert_eq!(failed_tasks(&address).await, "1");
    nodes.stop(1).await;
    let next = nodes.wait_for_voters(3).await;
    assert!(nodes.timestamp(next).await > first);
}

/// A request that panics is its client's alone. The connection stayed counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_panics_ends_its_connection() {
    let (nodes, panics) = nodes(1).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    panics.store(true, SeqCst);
    assert!(ask(&address, "/clock", None, TEST_TIMEOUT).await.is_err());
    panics.store(false, SeqCst);
    assert_eq!(ask(&address, "/clock", None, TEST_TIMEOUT).await.unwrap().status, 200);
    let deadline = Instant::now() + TEST_TIMEOUT;
    // The connection ends first, while the panic unwinds.
    while failed_tasks(&address).await == "0" {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(failed_tasks(&address).await, "1");
    // The one that asks.
    loop {
        let metrics = get(Protocol::Http1, &address, "/metrics").await;
        if metrics
            .text()
            .lines()
            .any(|line| line.trim_end_matches(".0") == "esker_http_connections 1")
        {
            break;
        }
        assert!(Instant::now() < deadline, "{}", metrics.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(nodes.timestamp(1).await.len() == 16);
}

/// A request over HTTP/3 that panicked counted as a stream without a request, and in no metric.
#[cfg(feature = "http3")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_over_http3_that_panics_ends_its_connection() {
    let (nodes, panics) = nodes(1).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    let client = crate::http3_client::Client::connect(&address, None).await.unwrap();
    assert_eq!(client.get("/clock").await.unwrap().status, 200);
    panics.store(true, SeqCst);
    assert!(client.get("/clock").await.is_err());
    panics.store(false, SeqCst);
    let deadline = Instant::now() + TEST_TIMEOUT;
    while failed_tasks(&address).await == "0" {
        assert!(Instant::now() < deadline, "the panic is not counted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(failed_tasks(&address).await, "1");
    assert!(client.get("/up").await.is_err(), "the connection has ended");
    assert_eq!(get(Protocol::Http3, &address, "/clock").await.status, 200);
}
