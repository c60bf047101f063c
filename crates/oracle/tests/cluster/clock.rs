//! The clock of an oracle.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{self, Write};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use esker_oracle::{Advance, OracleError, OracleOptions, Owner, Step};
use esker_raft::WallClock;

use crate::clients::{Cluster, SLOW_ROUND_TRIP, TEST_TIMEOUT, was_deposed};

/// Nanoseconds of an hour.
const HOUR_NS: u64 = 3_600_000_000_000;

/// Lines that were logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn with(&self, text: &str) -> usize {
        let lines = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        lines.lines().filter(|line| line.contains(text)).count()
    }
}

/// An hour back, for many epochs, and right again; twice.
#[tokio::test]
async fn a_clock_that_goes_back_is_logged_once_for_each_time() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    // Of this thread, which has the oracle.
    let _guard = tracing::subscriber::set_default(log.finish());
    let mut options = OracleOptions::default();
    options.epoch_interval = Duration::from_millis(1);
    let cluster = Cluster::with_nodes(1, options).await;
    let oracle = cluster.oracle(1);
    let mut last = oracle.timestamps(1).await.unwrap().first;
    for episode in 1..=2 {
        for hours in [-1, 0] {
            cluster.ahead[&1].store(hours * 3600, SeqCst);
            let advances = oracle.stats().advances;
            while oracle.stats().advances < advances + 10 {
                let next = oracle.timestamps(1).await.unwrap().first;
                assert!(next > last, "{next:?} after {last:?}");
                last = next;
            }
        }
        assert_eq!(lines.with("the clock is behind the last epoch"), episode);
        assert_eq!(lines.with("epochs follow the clock again"), episode);
        assert_eq!(oracle.stats().backward_steps, episode as u64);
    }
}

/// A leader whose epoch did not advance logged a warning for each request.
#[tokio::test]
async fn advances_that_fail_are_a_warning_a_second() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(log.finish());
    let mut options = OracleOptions::default();
    (options.epoch_interval, options.patience) =
        (Duration::from_millis(1), Duration::from_millis(20));
    let cluster = Cluster::with_nodes(1, options).await;
    let oracle = cluster.oracle(1);
    let begun = Instant::now();
    while oracle.timestamps(1).await.is_err() {
        assert!(begun.elapsed() < TEST_TIMEOUT);
    }
    cluster.stall(1, true);
    let failed = oracle.stats().failed_advances;
    while oracle.stats().failed_advances < failed + 5 {
        drop(oracle.timestamps(1).await);
        assert!(begun.elapsed() < TEST_TIMEOUT);
    }
    cluster.stall(1, false);
    let warnings = lines.with("the epoch did not advance") as u64;
    assert!((1..=1 + begun.elapsed().as_secs()).contains(&warnings), "{warnings}");
}

fn now() -> u64 {
    WallClock::default().now()
}

/// Has epochs follow the clock of this node, which leads.
async fn follow_clock(cluster: &Cluster, leader: u64) -> u64 {
    let begun = Instant::now();
    loop {
        cluster.lead(leader).await;
        match cluster.oracle(leader).follow_clock().await {
            Ok(epoch) => return epoch,
            Err(error) => assert!(was_deposed(&error) && begun.elapsed() < TEST_TIMEOUT, "{error}"),
        }
    }
}

/// A leader whose clock is an hour ahead begins where the clocks of most voters are, and says so.
/// An operator who knows that it is right has epochs follow it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn most_clocks_decide_where_epochs_begin() {
    for lease_reads in [false, true] {
        let cluster = Cluster::with_nodes(3, OracleOptions::default()).await;
        let leader = 1;
        if lease_reads {
            cluster.switch_leases(true).await;
        }
        cluster.ahead[&leader].store(3600, SeqCst);
        let oracle = cluster.oracle(leader);
        let first = cluster.timestamp(leader).await;
        assert!(first.epoch < now() + HOUR_NS / 2, "{first:?}");
        let seen = oracle.clock();
        let ahead = Duration::from_secs(3600) - OracleOptions::default().max_clock_step;
        let about = |by: Duration| by.abs_diff(ahead) < Duration::from_secs(30);
        assert!(matches!(seen.step, Step::Forward(by) if about(by)), "{seen:?}");
        assert!(seen.spread.is_some_and(|spread| spread > Duration::from_secs(3590)), "{seen:?}");
        assert!(seen.uncertainty().is_some_and(|all| all > Duration::from_secs(3590)), "{seen:?}");
        assert_eq!(oracle.stats().forward_steps, 1);
        // An epoch is due.
        tokio::time::sleep(OracleOptions::default().epoch_interval * 3 / 2).await;
        let followed = follow_clock(&cluster, leader).await;
        assert!(followed > now() + HOUR_NS / 2 && followed > first.epoch);
        let next = cluster.timestamp(leader).await;
        assert!(next.epoch >= followed, "{next:?}");
        let seen = oracle.clock();
        assert_eq!(seen.step, Step::None);
        assert!(seen.epoch_age.is_some_and(|age| age < TEST_TIMEOUT));
        // There is a new epoch, but one that is ahead of the clock cannot be taken back.
        cluster.ahead[&leader].store(0, SeqCst);
        assert!(follow_clock(&cluster, leader).await > followed);
        assert!(matches!(oracle.clock().step, Step::Backward(_)), "{:?}", oracle.clock());
        let other = (1..=3).find(|id| *id != leader).unwrap();
        assert!(cluster.oracle(other).follow_clock().await.is_err());
        assert_eq!(cluster.oracle(other).clock().uncertainty(), None);
    }
}

/// No request under a lease needs a proof, which brings the clocks of the other voters: a clock
/// that stepped meanwhile was never noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_are_compared_under_a_lease_too() {
    let cluster = Cluster::with_nodes_at(SLOW_ROUND_TRIP, 3, OracleOptions::default()).await;
    cluster.switch_leases(true).await;
    cluster.timestamp(1).await;
    cluster.ahead[&2].store(3600, SeqCst);
    let (oracle, begun) = (cluster.oracle(1), Instant::now());
    while oracle.clock().spread.is_none_or(|spread| spread < Duration::from_secs(3590)) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{:?}", oracle.clock());
        cluster.timestamp(1).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Two operators at once, while clients ask: each gets an epoch that follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_that_asks_for_the_clock_gets_an_epoch_that_follows() {
    let cluster = Cluster::with_nodes(1, OracleOptions::default()).await;
    let clients = cluster.clients();
    let oracle = cluster.oracle(1);
    for hours in 1..=5 {
        // An epoch is due, and is proposed when a client asks.
        tokio::time::sleep(OracleOptions::default().epoch_interval).await;
        cluster.ahead[&1].store(3600 * hours, SeqCst);
        let wall = now() + HOUR_NS * hours.unsigned_abs();
        let (one, two) = tokio::join!(oracle.follow_clock(), oracle.follow_clock());
        for followed in [one.unwrap(), two.unwrap()] {
            assert!(followed >= wall, "{followed} before {wall}");
        }
    }
    assert!(clients.check().await > 100);
}

/// A single node has no other clock to compare with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_node_believes_its_clock() {
    let mut cluster = Cluster::with_nodes(1, OracleOptions::default()).await;
    let first = cluster.oracle(1).timestamps(1).await.unwrap().first;
    assert!(first.epoch.abs_diff(now()) < HOUR_NS / 2);
    let seen = cluster.oracle(1).clock();
    assert_eq!(seen.spread, None);
    assert!(seen.uncertainty().is_some_and(|all| all < TEST_TIMEOUT), "{seen:?}");
    cluster.ahead[&1].store(3600, SeqCst);
    cluster.cut_power(1).await;
    cluster.start(1);
    cluster.leader().await;
    let later = cluster.oracle(1).timestamps(1).await.unwrap().first;
    assert!(later.epoch > now() + HOUR_NS / 2, "{later:?}");
}

/// Seconds: more than there are until epochs end, in 2554, and more than there were since 1970.
const CENTURIES_SECONDS: i64 = 700 * 31_557_600;

/// A clock after 2554, once, made the last epoch that there is, durably: no timestamp came any
/// more, for good. A leader without a reference believes a clock up to a year above the last epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_after_2554_leaves_epochs() {
    let mut cluster = Cluster::with_nodes(1, OracleOptions::default()).await;
    let mut last = cluster.timestamp(1).await;
    for ahead in [CENTURIES_SECONDS, -CENTURIES_SECONDS, CENTURIES_SECONDS / 5, 0] {
        cluster.ahead[&1].store(ahead, SeqCst);
        cluster.cut_power(1).await;
        cluster.start(1);
        cluster.leader().await;
        for _ in 0..2 {
            let next = cluster.timestamp(1).await;
            assert!(next > last && next.epoch < now() + HOUR_NS, "{next:?} after {last:?}");
            last = next;
            tokio::time::sleep(OracleOptions::default().epoch_interval * 3 / 2).await;
        }
    }
}

/// A cluster whose epoch an earlier version brought to the end has an error with a name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_that_are_used_up_have_a_name() {
    let cluster = Cluster::with_nodes(1, OracleOptions::default()).await;
    cluster.timestamp(1).await;
    assert_eq!(cluster.oracle(1).blocked(), None);
    let owner = Owner::default();
    let last = Advance { owner, wall: u64::MAX }.encode();
    cluster.node(1).propose(last, TEST_TIMEOUT).await.unwrap();
    let begun = Instant::now();
    // The epoch before it may still be young enough.
    let error = loop {
        match cluster.oracle(1).timestamps(1).await {
            Ok(_) => assert!(begun.elapsed() < TEST_TIMEOUT),
            Err(error) => break error,
        }
    };
    assert_eq!(error, OracleError::NoEpochLeft);
    assert_eq!(cluster.oracle(1).follow_clock().await, Err(OracleError::NoEpochLeft));
    assert_eq!(cluster.oracle(1).blocked(), Some(OracleError::NoEpochLeft));
}

/// An operator who has epochs follow a clock after 2200 is refused, and clients that asked at the
/// same time are not.
#[tokio::test]
async fn a_clock_that_is_not_followed_costs_no_client_its_timestamp() {
    let cluster = Cluster::with_nodes(1, OracleOptions::default()).await;
    let first = cluster.timestamp(1).await;
    cluster.ahead[&1].store(CENTURIES_SECONDS, SeqCst);
    let oracle = cluster.oracle(1);
    let (one, next, two) =
        tokio::join!(oracle.follow_clock(), oracle.timestamps(1), oracle.follow_clock());
    let refused = Err(OracleError::ClockTooHigh { clock: u64::MAX });
    assert_eq!((&one, &two), (&refused, &refused));
    assert!(next.unwrap().first > first);
}
