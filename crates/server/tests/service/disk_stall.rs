//! A node whose disk stalls.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use esker_server::{FollowerAnswer, ServerError};

use crate::client::{Protocol, get};
use crate::nodes::{Nodes, TEST_TIMEOUT};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_stalls_gives_its_leadership_away() {
    let nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    let before = nodes.timestamp(leader).await;
    let stalled = nodes.stall(leader).await;
    // Epochs advance while requests come: these are the entries that wait for the disk.
    let deadline = Instant::now() + TEST_TIMEOUT;
    let other = leader % 3 + 1;
    let next = loop {
        get(Protocol::Http1, &nodes.address(leader), "/timestamp").await;
        let leads = nodes.members(other).await.leader.map(|leader| leader.node);
        if let Some(next) = leads.filter(|node| *node != leader) {
            break next;
        }
        assert!(Instant::now() < deadline, "leadership stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let after = nodes.timestamp(next).await;
    assert!(after > before);
    let metrics = get(Protocol::Http1, &nodes.address(leader), "/metrics").await;
    assert!(metrics.text().contains("esker_disk_stalls_total 1"), "{}", metrics.text());
    drop(stalled);
    nodes.wait_for_voters(3).await;
}

/// openraft waits for the disk before it notices the next leader. Until then the node said that it
/// led, and had no timestamps for its clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_stalls_names_the_next_one() {
    let nodes = Nodes::with(3, |options| options.follower_answer = FollowerAnswer::Forward).await;
    let leader = nodes.leader().await;
    let address = nodes.address(leader);
    nodes.timestamp(leader).await;
    let stalled = nodes.stall(leader).await;
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let issued = get(Protocol::Http1, &address, "/timestamp").await;
        let named = nodes.named_leaders(leader).await;
        let waits = nodes.status(leader).await.disk_wait_ms > 0;
        if issued.status == 200 && waits && named.len() == 2 && !named.contains(&leader) {
            break;
        }
        assert!(Instant::now() < deadline, "{issued:?} {named:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(stalled);
    nodes.wait_for_voters(3).await;
}

/// A disk that stalls keeps no node from its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_stops_in_time_although_its_disk_stalls() {
    let mut nodes = Nodes::with(1, |options| options.close_timeout = TEST_TIMEOUT / 60).await;
    nodes.timestamp(1).await;
    let stalled = nodes.stall(1).await;
    let server = nodes.servers.remove(&1).unwrap();
    let begun = Instant::now();
    let stopped = server.stop().await;
    assert!(matches!(&stopped, Err(ServerError::Io(what, _)) if what.contains("in time")));
    assert!(begun.elapsed() < TEST_TIMEOUT / 3, "{:?}", begun.elapsed());
    drop(stalled);
}
