//! Answers of an oracle.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::pin::pin;
use std::time::Duration;

use esker_oracle::TimestampWidth::Bits64;
use esker_oracle::{COUNT_MAX, OracleError, OracleOptions};

use crate::clients::{Cluster, TEST_TIMEOUT};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_is_bounded() {
    let cluster = Cluster::with_nodes(1, OracleOptions::default()).await;
    let oracle = cluster.oracle(1);
    for count in [0, COUNT_MAX + 1, u32::MAX] {
        assert_eq!(oracle.timestamps(count).await, Err(OracleError::Count(count)));
    }
    let first = oracle.timestamps(COUNT_MAX).await.unwrap();
    assert_eq!(first.count, COUNT_MAX);
    let next = oracle.timestamps(1).await.unwrap();
    assert!(next.first > first.timestamps().last().unwrap());
    for (most, issued) in [(3, 3), (0, 1), (u32::MAX, COUNT_MAX)] {
        let mut options = OracleOptions::default();
        options.max_timestamps = most;
        let cluster = Cluster::with_nodes(1, options).await;
        let oracle = cluster.oracle(1);
        assert_eq!(oracle.max_timestamps(), issued);
        assert_eq!(oracle.timestamps(issued).await.unwrap().count, issued);
        let refused = oracle.timestamps(issued + 1).await;
        assert_eq!(refused, Err(OracleError::Count(issued + 1)));
    }
}

/// Above the buffer requests are refused at once, and those in it are answered in their order, with
/// one proof of leadership.
#[tokio::test]
async fn a_full_buffer_refuses() {
    let mut options = OracleOptions::default();
    options.buffer = 8;
    let cluster = Cluster::with_nodes(1, options).await;
    let oracle = cluster.oracle(1);
    oracle.timestamps(1).await.unwrap();
    let batches = oracle.stats().batches;
    // On one thread, none of them is taken before all were sent.
    let asked = futures_util::future::join_all((0..20).map(|_| oracle.timestamps(1))).await;
    let refused = asked.iter().filter(|answer| **answer == Err(OracleError::Busy)).count();
    let ranges: Vec<_> = asked.into_iter().flatten().collect();
    assert_eq!((refused, ranges.len()), (12, 8));
    assert_eq!(oracle.stats().batches, batches + 1);
    assert!(ranges.windows(2).all(|pair| pair[0].first < pair[1].first));
    oracle.timestamps(1).await.unwrap();
}

/// A follower names the leader; without a quorum there is an error in time, and then an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_and_lost_quorums_answer_in_time() {
    let mut cluster = Cluster::with_nodes(3, OracleOptions::default()).await;
    let leader = cluster.leader().await;
    let follower = leader % 3 + 1;
    let refused = cluster.oracle(follower).timestamps(1).await;
    let Err(OracleError::NotLeader { leader: Some((named, _)) }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(named, leader);
    let before = cluster.oracle(leader).timestamps(1).await.unwrap();
    let others: Vec<_> = (1..=3).filter(|id| *id != leader).collect();
    for id in &others {
        cluster.cut_power(*id).await;
    }
    for _ in 0..3 {
        let oracle = cluster.oracle(leader);
        let refused =
            tokio::time::timeout(Duration::from_secs(4), oracle.timestamps(1)).await.unwrap();
        assert!(refused.is_err(), "{refused:?}");
    }
    for id in others {
        cluster.start(id);
    }
    let leader = cluster.leader().await;
    let deadline = std::time::Instant::now() + TEST_TIMEOUT;
    let after = loop {
        match cluster.oracle(leader).timestamps(1).await {
            Ok(range) => break range,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
    };
    assert!(after.first > before.first);
}

/// Without requests no epoch is proposed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_oracle_proposes_nothing() {
    let cluster = Cluster::with_nodes(1, OracleOptions::default()).await;
    cluster.oracle(1).timestamps(1).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = cluster.node(1).status().last;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(cluster.node(1).status().last, before);
    // The first request after that waits for one advance.
    let first = cluster.oracle(1).timestamps(1).await.unwrap();
    assert_eq!(first.first.index, 1);
    assert_eq!(cluster.node(1).status().last, before.map(|last| last + 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_interval_is_one() {
    for interval in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let mut options = OracleOptions::default();
        options.epoch_interval = interval;
        let cluster = Cluster::with_nodes(1, options).await;
        let clients = cluster.clients();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(clients.check().await > 0, "{interval:?}");
    }
}

/// Without a quorum each request gets its answer in time, those that came while another waited,
/// too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_waits_for_longer_than_it_may() {
    let mut options = OracleOptions::default();
    options.patience = Duration::from_millis(300);
    let mut cluster = Cluster::with_nodes(3, options).await;
    let leader = cluster.leader().await;
    cluster.oracle(leader).timestamps(1).await.unwrap();
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.cut_power(id).await;
    }
    let oracle = cluster.oracle(leader);
    let asked = (0..20).map(|n| {
        let oracle = oracle.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(50 * n)).await;
            let answer = tokio::time::timeout(Duration::from_secs(2), oracle.timestamps(1)).await;
            answer.unwrap().unwrap_err();
        }
    });
    futures_util::future::join_all(asked).await;
}

/// While requests come, the epoch advances each interval, and each epoch begins at index 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_advance_under_requests() {
    let mut options = OracleOptions::default();
    options.epoch_interval = Duration::from_millis(20);
    let cluster = Cluster::with_nodes(1, options).await;
    let mut last = cluster.oracle(1).timestamps(1).await.unwrap().first;
    let (mut epochs, deadline) = (0, std::time::Instant::now() + TEST_TIMEOUT);
    while epochs < 10 {
        assert!(std::time::Instant::now() < deadline, "{epochs} epochs");
        let next = cluster.oracle(1).timestamps(1).await.unwrap().first;
        assert!(next > last);
        if next.epoch != last.epoch {
            assert_eq!(next.index, 1);
            epochs += 1;
        }
        last = next;
    }
}

/// Requests for many timestamps of 64 bits use up epochs faster than one in a millisecond: epochs
/// ran ahead of the clock, and an epoch cannot be taken back.
#[tokio::test]
async fn a_used_up_epoch_is_replaced_after_its_millisecond() {
    let mut options = OracleOptions::default();
    options.patience = TEST_TIMEOUT;
    let cluster = Cluster::with_nodes(1, options).await;
    let oracle = cluster.oracle(1);
    let ask = || oracle.timestamps_of_width(COUNT_MAX, Bits64);
    // The oracle's time stands still while a blocking task runs.
    tokio::time::pause();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let blocking = tokio::task::spawn_blocking(move || ended.recv().unwrap_err());
    let first = ask().await.unwrap().first;
    for _ in 0..2 {
        assert_eq!(ask().await.unwrap().first.epoch, first.epoch);
    }
    let mut next = pin!(ask());
    let real_time = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(200)));
    tokio::select! {
        next = &mut next => panic!("the epoch was used for no time: {next:?}"),
        slept = real_time => slept.unwrap(),
    }
    tokio::time::advance(Duration::from_millis(2)).await;
    assert!(next.await.unwrap().first.epoch > first.epoch);
    drop(end);
    blocking.await.unwrap();
}

/// Also one that led before, within an epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_advances_the_epoch_first() {
    let mut options = OracleOptions::default();
    options.epoch_interval = Duration::from_secs(60);
    let cluster = Cluster::with_nodes(3, options).await;
    let mut leader = cluster.leader().await;
    let mut last = cluster.oracle(leader).timestamps(1).await.unwrap().first;
    for _ in 0..4 {
        let other = leader % 3 + 1;
        cluster.lead(other).await;
        leader = cluster.leader().await;
        let deadline = std::time::Instant::now() + TEST_TIMEOUT;
        let next = loop {
            match cluster.oracle(leader).timestamps(1).await {
                Ok(range) => break range.first,
                Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
            }
            leader = cluster.leader().await;
        };
        assert!(next.epoch > last.epoch && next.index == 1, "{next:?} after {last:?}");
        last = next;
    }
}

/// An advance that succeeds ends the count of those that missed their deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_advance_that_succeeds_resets_the_count_of_missed_ones() {
    let mut options = OracleOptions::default();
    options.patience = Duration::from_millis(50);
    options.epoch_interval = Duration::from_millis(1);
    options.failed_advances = 5;
    let cluster = Cluster::with_nodes(1, options).await;
    let oracle = cluster.oracle(1);
    oracle.timestamps(1).await.unwrap();
    // Two of each round are seen, and a third may be under way.
    for _ in 0..3 {
        cluster.stall(1, true);
        let failed = oracle.stats().failed_advances;
        while oracle.stats().failed_advances < failed + 2 {
            drop(oracle.timestamps(1).await);
        }
        cluster.stall(1, false);
        let advanced = oracle.stats().advances;
        while oracle.stats().advances == advanced {
            drop(oracle.timestamps(1).await);
        }
    }
    assert!(oracle.stats().failed_advances > 5);
    let gave_up = tokio::time::timeout(Duration::from_millis(1), oracle.gave_up()).await;
    assert!(gave_up.is_err());
}

/// Advances that miss their deadline are counted until one does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oracle_that_cannot_advance_gives_up() {
    let mut options = OracleOptions::default();
    options.patience = Duration::from_millis(50);
    options.failed_advances = 2;
    let cluster = Cluster::with_nodes(1, options).await;
    let (oracle, node) = (cluster.oracle(1), cluster.node(1));
    oracle.timestamps(1).await.unwrap();
    cluster.stall(1, true);
    let asked = async {
        loop {
            drop(oracle.timestamps(1).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let gave_up = async {
        tokio::select! { () = oracle.gave_up() => {}, () = asked => {} }
    };
    tokio::time::timeout(TEST_TIMEOUT, gave_up).await.unwrap();
    assert!(node.disk_wait() > Some(Duration::from_millis(50)));
    assert!(oracle.stats().failed_advances >= 2);
    cluster.stall(1, false);
    while oracle.timestamps(1).await.is_err() {}
}
