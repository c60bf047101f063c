//! A leader whose disk stalls.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use crate::client::{Protocol, get};
use crate::nodes::{LONG, Nodes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_stalls_gives_its_leadership_away() {
    let nodes = Nodes::of(3).await;
    let leader = nodes.leader().await;
    let before = nodes.timestamp(leader).await;
    nodes.disks[&leader].stall(true);
    // Epochs advance while requests come: these are the entries that wait for the disk.
    let deadline = Instant::now() + LONG;
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
    nodes.disks[&leader].stall(false);
    nodes.wait_for_voters(3).await;
}
