//! A leader whose clock is wrong, as an operator sees it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use esker_raft::WallClock;
use esker_server::{ClockStatus, FollowClockResponse, NodeStatus};
use serde_json::json;

use crate::client::{Protocol, get, post};
use crate::nodes::Nodes;

/// In nanoseconds.
const HOUR_NS: u64 = 3_600_000_000_000;

async fn clock(nodes: &Nodes, node: u64) -> ClockStatus {
    let answer = get(Protocol::Http1, &nodes.address(node), "/clock").await;
    assert_eq!(answer.status, 200);
    serde_json::from_slice(&answer.body).unwrap()
}

async fn step_ms(nodes: &Nodes, node: u64) -> i64 {
    let answer = get(Protocol::Http1, &nodes.address(node), "/status").await;
    serde_json::from_slice::<NodeStatus>(&answer.body).unwrap().clock_step_ms
}

pub async fn metric(nodes: &Nodes, node: u64, name: &str) -> f64 {
    let metrics = get(Protocol::Http1, &nodes.address(node), "/metrics").await;
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    line.unwrap().trim().parse().unwrap()
}

/// Node 1 leads, and is an hour ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_ahead_is_shown_and_followed_when_an_operator_asks() {
    let mut nodes = Nodes::none();
    let ahead = Arc::new(AtomicU64::new(1));
    for node in 1..=3 {
        let mut options = nodes.options(node);
        // A busy machine has no elections.
        options.round_trip = Duration::from_millis(200);
        if node == 1 {
            let ahead = Arc::clone(&ahead);
            options.clock =
                WallClock::new(move || WallClock::default().now() + ahead.load(SeqCst) * HOUR_NS);
        }
        nodes.start_with(node, options).await.unwrap();
    }
    assert_eq!(nodes.wait_for_voters(3).await, 1);
    assert_eq!(clock(&nodes, 1).await.uncertainty_ns, None);
    let first = nodes.timestamp(1).await;
    let epoch = u64::from_be_bytes(*first.first_chunk().unwrap());
    let now = WallClock::default().now();
    assert!(epoch < now + HOUR_NS / 2, "{epoch}");
    let seen = clock(&nodes, 1).await;
    assert!(seen.leads && seen.node == 1 && seen.epoch >= epoch, "{seen:?}");
    assert!(seen.clock_ns >= now + HOUR_NS / 2, "{seen:?}");
    let about_an_hour = |ns: u64| ns > HOUR_NS - HOUR_NS / 60 && ns < HOUR_NS + HOUR_NS / 60;
    assert!(seen.spread_ns.is_some_and(about_an_hour), "{seen:?}");
    assert!(seen.uncertainty_ns.is_some_and(|all| all > 2 * (HOUR_NS - HOUR_NS / 60)), "{seen:?}");
    assert!(about_an_hour(seen.step_ns.unsigned_abs()) && seen.step_ns > 0, "{seen:?}");
    assert!(step_ms(&nodes, 1).await > 3_500_000);
    assert!(metric(&nodes, 1, "esker_clock_step_seconds").await > 3500.0);
    assert!(metric(&nodes, 1, "esker_clock_spread_seconds").await > 3500.0);
    assert!(metric(&nodes, 1, "esker_clock_uncertainty_seconds").await > 7000.0);
    let follower = clock(&nodes, 2).await;
    assert!(!follower.leads && follower.epoch_age_ns.is_none(), "{follower:?}");
    assert!(follower.uncertainty_ns.is_none() && follower.step_ns == 0, "{follower:?}");
    assert_eq!(step_ms(&nodes, 2).await, 0);
    assert!(metric(&nodes, 2, "esker_clock_uncertainty_seconds").await < 0.0);

    let path = "/cluster/follow-clock";
    let body = json!({ "cluster": nodes.members(1).await.cluster }).to_string();
    assert_eq!(post(&nodes.address(1), path, r#"{"cluster":"x"}"#).await.status, 422);
    assert_eq!(post(&nodes.address(1), path, "{}").await.status, 400);
    assert_eq!(post(&nodes.address(2), path, &body).await.status, 409);
    let answer = post(&nodes.address(1), path, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let FollowClockResponse { epoch } = serde_json::from_slice(&answer.body).unwrap();
    assert!(epoch > now + HOUR_NS / 2, "{epoch}");
    let next = nodes.timestamp(1).await;
    assert!(next > first && u64::from_be_bytes(*next.first_chunk().unwrap()) >= epoch);
    let seen = clock(&nodes, 1).await;
    assert!(seen.step_ns == 0 && seen.epoch_age_ns.is_some(), "{seen:?}");
    assert_eq!(step_ms(&nodes, 1).await, 0);
    // The clock was wrong after all.
    ahead.store(0, SeqCst);
    let refused = post(&nodes.address(1), path, &body).await;
    assert_eq!(refused.status, 422);
    assert!(refused.text().contains("behind the epoch"), "{}", refused.text());
    assert!(step_ms(&nodes, 1).await < -3_500_000);
}

/// The uncertainty of an idle leader grew with the age of its epoch, although a request would get a
/// new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_leader_is_as_certain_as_the_next_epoch() {
    let nodes = Nodes::with(1, |options| {
        options.oracle.epoch_interval = Duration::from_millis(1);
    })
    .await;
    nodes.timestamp(1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let seen = clock(&nodes, 1).await;
    assert!(seen.epoch_age_ns.is_some_and(|age| age >= 300_000_000), "{seen:?}");
    assert!(seen.uncertainty_ns.is_some_and(|all| all <= 2_000_000), "{seen:?}");
    assert!(metric(&nodes, 1, "esker_clock_uncertainty_seconds").await <= 0.002);
}

/// A node alone whose clock cannot be believed took its first epoch from it: there was none after
/// it, and the node was ready, and answered each request with an error without a name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_clock_to_begin_with_is_not_ready_and_says_why() {
    let mut nodes = Nodes::none();
    let shown = Arc::new(AtomicU64::new(0));
    let mut options = nodes.options(1);
    let clock = Arc::clone(&shown);
    options.clock = WallClock::new(move || match clock.load(SeqCst) {
        1 => WallClock::default().now(),
        shown => shown,
    });
    nodes.start_with(1, options).await.unwrap();
    nodes.wait_for_voters(1).await;
    let address = nodes.address(1);
    for (clock, year) in [(0, "1970 or before"), (u64::MAX, "2554 or after")] {
        shown.store(clock, SeqCst);
        let refused = get(Protocol::Http1, &address, "/timestamp").await;
        assert_eq!(refused.status, 500);
        assert!(refused.text().contains(year), "{}", refused.text());
        assert!(refused.text().contains("set it right"), "{}", refused.text());
        let ready = get(Protocol::Http1, &address, "/ready").await;
        assert_eq!((ready.status, ready.text()), (500, refused.text()));
        assert_eq!(nodes.status(1).await.blocked, Some(refused.text().into()));
    }
    shown.store(1, SeqCst);
    let first = nodes.timestamp(1).await;
    assert_eq!(get(Protocol::Http1, &address, "/ready").await.status, 200);
    assert_eq!(nodes.status(1).await.blocked, None);
    // After it, any clock will do, and no operator has epochs follow one that is after 2200.
    shown.store(u64::MAX, SeqCst);
    tokio::time::sleep(Duration::from_millis(150)).await;
    let next = nodes.timestamp(1).await;
    assert!(next > first);
    let body = json!({ "cluster": nodes.members(1).await.cluster }).to_string();
    let refused = post(&address, "/cluster/follow-clock", &body).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("2554 or after"), "{}", refused.text());
    assert!(nodes.timestamp(1).await > next);
    assert_eq!(get(Protocol::Http1, &address, "/ready").await.status, 200);
}

/// The step of a clock that is behind was 0 until the second epoch after a start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_behind_is_shown_from_the_first_epoch_after_a_start_on() {
    let mut nodes = Nodes::none();
    let behind = Arc::new(AtomicU64::new(0));
    let start = async |nodes: &mut Nodes| {
        let mut options = nodes.options(1);
        // One epoch.
        options.oracle.epoch_interval = Duration::from_secs(3600);
        let behind = Arc::clone(&behind);
        options.clock =
            WallClock::new(move || WallClock::default().now() - behind.load(SeqCst) * HOUR_NS);
        nodes.start_with(1, options).await.unwrap();
        nodes.wait_for_voters(1).await;
        nodes.timestamp(1).await
    };
    let first = start(&mut nodes).await;
    assert_eq!(step_ms(&nodes, 1).await, 0);
    nodes.stop(1).await;
    behind.store(1, SeqCst);
    assert!(start(&mut nodes).await > first);
    assert!(step_ms(&nodes, 1).await < -3_500_000);
    assert!(metric(&nodes, 1, "esker_clock_step_seconds").await < -3500.0);
}
