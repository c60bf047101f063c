//! Leaders that answer under their lease.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use esker_oracle::{OracleError, OracleOptions};

use crate::clients::{Cluster, SLOW_ROUND_TRIP, TEST_TIMEOUT, has_no_lead, was_deposed};

const SHORT_WAIT: Duration = Duration::from_millis(150);

/// Epochs that outlive all faults of a test.
async fn leased() -> Cluster {
    let mut options = OracleOptions::default();
    options.epoch_interval = Duration::from_secs(60);
    let cluster = Cluster::with_nodes(3, options).await;
    cluster.switch_leases(true).await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_with_a_lease_needs_no_proof() {
    for nodes in [1, 3] {
        let options = OracleOptions::default();
        let cluster = Cluster::with_nodes_at(SLOW_ROUND_TRIP, nodes, options).await;
        let oracle = cluster.oracle(cluster.leader().await);
        let ask = async |count: usize| {
            let before = oracle.stats();
            let mut last = None;
            for _ in 0..count {
                let range = oracle.timestamps(3).await.unwrap();
                assert!(last < Some(range.first));
                last = range.timestamps().last();
            }
            (oracle.stats().leased - before.leased, oracle.stats().batches - before.batches)
        };
        assert_eq!(ask(50).await.0, 0, "leases are off");
        cluster.switch_leases(true).await;
        // The epochs advance meanwhile: a few requests find them old.
        tokio::time::sleep(SHORT_WAIT).await;
        let (leased, batches) = ask(2000).await;
        assert!(leased > 1800 && leased + batches >= 2000, "{leased} {batches}");
        cluster.switch_leases(false).await;
        assert_eq!(ask(50).await.0, 0, "leases are off again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_advance_under_a_lease() {
    let cluster = Cluster::with_nodes(1, OracleOptions::default()).await;
    cluster.switch_leases(true).await;
    let oracle = cluster.oracle(1);
    let (begun, before) = (std::time::Instant::now(), oracle.stats().advances);
    let mut epochs = std::collections::BTreeSet::new();
    while begun.elapsed() < 8 * SHORT_WAIT {
        epochs.insert(oracle.timestamps(1).await.unwrap().first.epoch);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // One in an interval of 100 ms, and no request waited for it.
    assert!((4..=13).contains(&epochs.len()), "{epochs:?}");
    assert!(oracle.stats().advances - before <= 13);
}

/// A lease ends, and with it the answers, before another node can lead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_answers_for_a_lease_at_most() {
    let cluster = leased().await;
    let old = cluster.leader().await;
    let oracle = cluster.oracle(old);
    assert!(oracle.timestamps(1).await.is_ok());
    let clients = cluster.clients();
    for _ in 0..3 {
        tokio::time::sleep(SHORT_WAIT).await;
        let old = cluster.leader().await;
        cluster.cut_off(old);
        while cluster.leader().await == old {}
        let refused = tokio::time::timeout(SHORT_WAIT, cluster.oracle(old).timestamps(1)).await;
        assert!(!matches!(refused, Ok(Ok(_))), "{refused:?}");
        tokio::time::sleep(SHORT_WAIT).await;
        cluster.connect();
    }
    cluster.leader().await;
    tokio::time::sleep(SHORT_WAIT).await;
    assert!(clients.check().await > 1000);
}

/// The lease of a leader runs on while the next one leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_gives_the_lease_up() {
    let cluster = leased().await;
    let clients = cluster.clients();
    let (mut transfers, begun) = (0, Instant::now());
    while transfers < 8 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{transfers} transfers");
        tokio::time::sleep(SHORT_WAIT / 3).await;
        let leader = cluster.leader().await;
        let next = leader % 3 + 1;
        if let Err(error) = cluster.oracle(leader).timestamps(1).await {
            assert!(was_deposed(&error), "{error}");
            continue;
        }
        if let Err(error) = cluster.node(leader).transfer(next, TEST_TIMEOUT).await {
            assert!(has_no_lead(&error), "{error}");
            continue;
        }
        transfers += 1;
        let refused = cluster.oracle(leader).timestamps(1).await;
        let is_refused =
            matches!(refused, Err(OracleError::NotLeader { .. } | OracleError::Unavailable(_)));
        assert!(is_refused, "{refused:?}");
    }
    assert!(clients.check().await > 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_rise_while_leaders_with_leases_lose_their_power() {
    let mut cluster = leased().await;
    let clients = cluster.clients();
    for _ in 0..3 {
        tokio::time::sleep(SHORT_WAIT).await;
        let leader = cluster.leader().await;
        cluster.cut_power(leader).await;
        cluster.start(leader);
        cluster.leader().await;
    }
    // A voter that restarts may have acknowledged a heartbeat just before.
    for _ in 0..3 {
        let leader = cluster.leader().await;
        let voter = leader % 3 + 1;
        cluster.cut_power(voter).await;
        cluster.cut_off(leader);
        cluster.start(voter);
        while cluster.leader().await == leader {}
        cluster.connect();
        tokio::time::sleep(SHORT_WAIT).await;
    }
    for id in 1..=3 {
        cluster.cut_power(id).await;
    }
    for id in 1..=3 {
        cluster.start(id);
    }
    let leader = cluster.leader().await;
    tokio::time::sleep(SHORT_WAIT).await;
    assert!(clients.check().await > 1000);
    // The switch is replicated.
    assert!(cluster.oracle(leader).stats().leased > 0);
}
