//! The queue of requests: what it takes, in which order it is answered, and what its waiters cost.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use esker_oracle::{OracleError, OracleOptions};
use esker_raft::NodeError;
use futures_util::future::join_all;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::clients::{Cluster, TEST_TIMEOUT};

/// CPU time of this thread, which has the oracle and its callers. The node has its own.
fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Requests are refused only when the buffer is full, however many callers send at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_offer_fails_only_when_the_buffer_is_full() {
    const CALLER_TASKS: usize = 64;
    let mut options = OracleOptions::default();
    options.buffer = CALLER_TASKS;
    let cluster = Cluster::with_nodes(1, options).await;
    let callers = (0..CALLER_TASKS).map(|_| {
        let oracle = cluster.oracle(1);
        tokio::spawn(async move {
            for _ in 0..100 {
                oracle.timestamps(1).await.unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert_eq!(cluster.oracle(1).waiting(), 0);
}

/// Two, and no third; then first in, first out.
#[tokio::test]
async fn a_queue_of_two_takes_two_and_answers_them_in_order() {
    let mut options = OracleOptions::default();
    options.buffer = 2;
    let cluster = Cluster::with_nodes(1, options).await;
    let oracle = cluster.oracle(1);
    let mut last = oracle.timestamps(1).await.unwrap().first;
    for _ in 0..3 {
        let mut asked = [1, 2, 3].map(|count| Box::pin(oracle.timestamps(count)));
        // On one thread, none is taken meanwhile.
        for (before, ask) in asked.iter_mut().enumerate() {
            let answer = futures_util::poll!(ask.as_mut());
            assert_eq!(answer.is_ready(), before == 2, "{answer:?}");
            assert_eq!(oracle.waiting(), (before + 1).min(2));
        }
        let [first, second, _] = asked;
        for (ask, count) in [(first, 1), (second, 2)] {
            let range = ask.await.unwrap();
            assert!(range.first > last && range.count == count, "{range:?} after {last:?}");
            last = range.timestamps().last().unwrap();
        }
        assert_eq!(oracle.waiting(), 0);
    }
}

/// A request whose time is over before there is an answer gets an error, and takes none from the
/// next.
#[tokio::test]
async fn a_request_that_timed_out_does_no_harm() {
    let mut options = OracleOptions::default();
    options.patience = Duration::from_millis(100);
    let cluster = Cluster::with_nodes(1, options).await;
    let oracle = cluster.oracle(1);
    let before = oracle.timestamps(1).await.unwrap();
    cluster.stall(1, true);
    // Older than two intervals: the next request needs an epoch, and with it the disk.
    tokio::time::sleep(Duration::from_millis(210)).await;
    // The time of the request and that of its epoch are over together.
    let late = oracle.timestamps(1).await;
    let timed_out = Err(OracleError::Unavailable(NodeError::TimedOut));
    assert!(late == Err(OracleError::TimedOut) || late == timed_out, "{late:?}");
    cluster.stall(1, false);
    let deadline = Instant::now() + TEST_TIMEOUT;
    let after = loop {
        match oracle.timestamps(1).await {
            Ok(range) => break range,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    assert!(after.first > before.first);
}

/// The seed's waiters spun.
#[tokio::test]
async fn requests_that_wait_take_no_processor_time() {
    let mut options = OracleOptions::default();
    options.patience = Duration::from_millis(800);
    let cluster = Cluster::with_nodes(1, options).await;
    let oracle = cluster.oracle(1);
    oracle.timestamps(1).await.unwrap();
    cluster.stall(1, true);
    let idle = thread_time();
    tokio::time::sleep(Duration::from_millis(210)).await;
    let idle = thread_time() - idle;
    let (begun, used) = (Instant::now(), thread_time());
    let answers = join_all((0..100).map(|_| oracle.timestamps(1))).await;
    let used = thread_time() - used;
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert!(begun.elapsed() >= Duration::from_millis(700), "{:?}", begun.elapsed());
    assert!(idle < Duration::from_millis(50), "without a request: {idle:?}");
    assert!(used < Duration::from_millis(100), "with 100 that wait: {used:?}");
    cluster.stall(1, false);
}

/// Waiting requests get an error, and so do later ones.
#[test]
fn an_oracle_that_ends_releases_those_that_wait() {
    let own = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let (of_oracle, of_callers) = (own().unwrap(), own().unwrap());
    let mut options = OracleOptions::default();
    options.patience = TEST_TIMEOUT;
    let (cluster, oracle) = of_oracle.block_on(async {
        let cluster = Cluster::with_nodes(1, options).await;
        let oracle = cluster.oracle(1);
        oracle.timestamps(1).await.unwrap();
        cluster.stall(1, true);
        tokio::time::sleep(Duration::from_millis(210)).await;
        (cluster, oracle)
    });
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let oracle = oracle.clone();
            of_callers.spawn(async move { oracle.timestamps(1).await })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(50));
    assert!(waiting.iter().all(|ask| !ask.is_finished()));
    of_oracle.shutdown_background();
    of_callers.block_on(async {
        for ask in waiting {
            let answer = tokio::time::timeout(TEST_TIMEOUT / 2, ask).await.unwrap().unwrap();
            assert_eq!(answer, Err(OracleError::Stopped));
        }
        assert_eq!(oracle.timestamps(1).await, Err(OracleError::Stopped));
    });
    cluster.stall(1, false);
}

/// Both are the same node in the same term, with the same session of its log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_oracles_of_one_node_share_no_epoch() {
    let mut options = OracleOptions::default();
    options.epoch_interval = Duration::from_millis(2);
    let cluster = Cluster::with_nodes(1, options.clone()).await;
    let others = cluster.another_oracle(1, options);
    let mut tasks = Vec::new();
    for oracle in [cluster.oracle(1), others] {
        tasks.push(tokio::spawn(async move {
            let mut issued = Vec::new();
            for _ in 0..300 {
                // An advance may find that the other one's came after it.
                if let Ok(range) = oracle.timestamps(2).await {
                    issued.extend(range.timestamps());
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            issued
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    let issued = all.len();
    assert!(issued > 300, "{issued}");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), issued);
}
