//! Faults while clients ask: what they get stays unique and in order.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use esker_oracle::OracleOptions;

use crate::clients::Cluster;

const SHORT_WAIT: Duration = Duration::from_millis(150);

/// Epochs that outlive all faults of a test, as far as it is up to the oracle.
fn long_epochs() -> OracleOptions {
    let mut options = OracleOptions::default();
    options.epoch_interval = Duration::from_secs(60);
    options
}

/// The seed issued an epoch's indexes again when a node led for the second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leads_again_does_not_continue_its_epoch() {
    let cluster = Cluster::with_nodes(3, long_epochs()).await;
    let clients = cluster.clients();
    for _ in 0..4 {
        tokio::time::sleep(SHORT_WAIT).await;
        let leader = cluster.leader().await;
        cluster.lead(leader % 3 + 1).await;
        tokio::time::sleep(SHORT_WAIT).await;
        cluster.lead(leader).await;
    }
    tokio::time::sleep(SHORT_WAIT).await;
    assert!(clients.check().await > 1000);
}

/// A single node is its own quorum: it leads again in its next term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_node_does_not_continue_its_epoch() {
    let mut cluster = Cluster::with_nodes(1, long_epochs()).await;
    let clients = cluster.clients();
    for _ in 0..5 {
        tokio::time::sleep(SHORT_WAIT).await;
        cluster.cut_power(1).await;
        cluster.start(1);
        cluster.leader().await;
    }
    tokio::time::sleep(SHORT_WAIT).await;
    assert!(clients.check().await > 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_lose_their_power() {
    let mut cluster = Cluster::with_nodes(3, OracleOptions::default()).await;
    let clients = cluster.clients();
    for _ in 0..4 {
        tokio::time::sleep(SHORT_WAIT).await;
        let leader = cluster.leader().await;
        cluster.cut_power(leader).await;
        cluster.leader().await;
        tokio::time::sleep(SHORT_WAIT).await;
        cluster.start(leader);
    }
    for id in 1..=3 {
        cluster.cut_power(id).await;
    }
    for id in 1..=3 {
        cluster.start(id);
    }
    cluster.leader().await;
    tokio::time::sleep(SHORT_WAIT).await;
    assert!(clients.check().await > 1000);
}

/// The leader that was cut off has an epoch of its own, and clients that ask it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_serves_nothing() {
    let cluster = Cluster::with_nodes(3, long_epochs()).await;
    let clients = cluster.clients();
    for _ in 0..3 {
        tokio::time::sleep(SHORT_WAIT).await;
        let old = cluster.leader().await;
        cluster.cut_off(old);
        while cluster.leader().await == old {}
        tokio::time::sleep(3 * SHORT_WAIT).await;
        cluster.connect();
    }
    cluster.leader().await;
    tokio::time::sleep(SHORT_WAIT).await;
    assert!(clients.check().await > 1000);
}

/// An hour back and forth, on the leader and on the node that leads next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_rise_while_clocks_step() {
    let cluster = Cluster::with_nodes(3, OracleOptions::default()).await;
    let clients = cluster.clients();
    for ahead in [3600, -3600, 0, 3600] {
        let leader = cluster.leader().await;
        cluster.ahead[&leader].store(ahead, SeqCst);
        tokio::time::sleep(3 * SHORT_WAIT).await;
        cluster.lead(leader % 3 + 1).await;
        tokio::time::sleep(SHORT_WAIT).await;
    }
    assert!(clients.check().await > 1000);
}
