//! `EPOCH_DEADLINE_LIMIT` counts deadlines by which a leader got no epoch.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use esker_oracle::OracleOptions;

use crate::clients::{Cluster, SLOW_ROUND_TRIP, TEST_TIMEOUT};

/// The disks of both followers freeze. Proofs need no disk, so that the leader leads, and no epoch
/// is committed. The first advance was late, and counted; openraft refused the next ones at once,
/// since no quorum acknowledged it any more, and each of these set the count back to 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advances_that_frozen_followers_do_not_commit_are_counted() {
    let mut options = OracleOptions::default();
    (options.patience, options.failed_advances) = (Duration::from_millis(50), 3);
    let cluster = Cluster::with_nodes_at(SLOW_ROUND_TRIP, 3, options).await;
    let last = cluster.timestamp(1).await;
    let oracle = cluster.oracle(1);
    let before = oracle.stats().failed_advances;
    for follower in [2, 3] {
        cluster.stall(follower, true);
    }
    let asked = async {
        loop {
            drop(oracle.timestamps(1).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let gave_up = async {
        tokio::select! { () = oracle.gave_up() => {}, () = asked => {} }
    };
    let gave_up = tokio::time::timeout(TEST_TIMEOUT, gave_up).await;
    let failed = oracle.stats().failed_advances - before;
    for follower in [2, 3] {
        cluster.stall(follower, false);
    }
    gave_up.unwrap();
    assert!(failed >= 3, "{failed}");
    // The process decides: the oracle still tries.
    let again = async {
        loop {
            if let Ok(range) = oracle.timestamps(1).await {
                return range.first;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(TEST_TIMEOUT, again).await.unwrap() > last);
}
