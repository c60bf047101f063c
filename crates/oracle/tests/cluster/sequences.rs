//! Sequences through changes of the leader: no gap, no repeat, and every answer stays.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use esker_oracle::{
    Oracle, OracleOptions, SEQUENCE_NUMBER_MAX, SequenceError, SequenceName, Timestamp,
};
use esker_raft::NodeError;
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use crate::clients::{Cluster, SLOW_ROUND_TRIP, TEST_TIMEOUT};

/// The tasks that take numbers.
const CALLER_TASKS: usize = 16;
/// The time in which a request is answered, by whichever node leads, on a busy machine too.
const ANSWER_TIMEOUT: Duration = TEST_TIMEOUT.saturating_mul(10);

fn name(name: &str) -> SequenceName {
    name.parse().unwrap()
}

/// Whether a request may be sent again, to this node or another.
fn is_transient(error: &SequenceError) -> bool {
    matches!(error, SequenceError::Unavailable(_) | SequenceError::Busy)
}

/// Calls one node after the other, until one answers.
async fn until_answered<T, E, F>(
    oracles: impl Fn(u64) -> Option<Oracle>,
    first: u64,
    is_transient: impl Fn(&E) -> bool,
    call: impl Fn(Oracle) -> F,
) -> Result<T, E>
where
    E: std::fmt::Debug,
    F: Future<Output = Result<T, E>>,
{
    let (mut node, deadline) = (first, Instant::now() + ANSWER_TIMEOUT);
    loop {
        if let Some(oracle) = oracles(node) {
            match call(oracle).await {
                Err(error) if is_transient(&error) => {
                    assert!(Instant::now() < deadline, "{error:?}");
                }
                answered => return answered,
            }
        }
        assert!(Instant::now() < deadline, "no node runs");
        node = node % 3 + 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Takes numbers under this key, of whichever node leads.
async fn take(
    oracles: impl Fn(u64) -> Option<Oracle>,
    node: u64,
    name: &SequenceName,
    count: u32,
    key: Timestamp,
) -> Result<u64, SequenceError> {
    let call = |oracle: Oracle| async move { oracle.sequences().next(name, count, key).await };
    until_answered(oracles, node, is_transient, call).await
}

/// The numbers that a request took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TakenNumbers {
    key: Timestamp,
    first: u64,
    count: u32,
}

/// Tasks that take numbers, each request under one key, until they are stopped.
struct Callers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Vec<TakenNumbers>>>,
}

impl Callers {
    fn start(cluster: &Cluster, name: &SequenceName) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..CALLER_TASKS as u64).map(|number| {
            let (oracles, stop, name) = (cluster.oracles(), Arc::clone(&stop), name.clone());
            tokio::spawn(async move {
                let (mut taken, mut turn) = (Vec::<TakenNumbers>::new(), number);
                while !stop.load(SeqCst) {
                    turn += 1;
                    // Half of them ask all nodes in turn, and so both sides of a change.
                    let node = 1 + if number % 2 == 0 { number % 3 } else { turn % 3 };
                    let call = |oracle: Oracle| async move { oracle.timestamps(1).await };
                    let key = until_answered(&oracles, node, |_| true, call).await.unwrap().first;
                    let count = 1 + (turn % 3) as u32;
                    let first = take(&oracles, node, &name, count, key).await.unwrap();
                    taken.push(TakenNumbers { key, first, count });
                    // A try after the answer, of this request or an earlier one.
                    let again = taken[turn as usize * 7 % taken.len()];
                    let found = take(&oracles, node, &name, again.count, again.key).await;
                    assert_eq!(found, Ok(again.first));
                }
                taken
            })
        });
        let tasks = tasks.collect();
        Self { stop, tasks }
    }

    /// Stops them, and returns all requests, of which each was answered.
    async fn stop(self) -> Vec<TakenNumbers> {
        self.stop.store(true, SeqCst);
        let mut taken = Vec::new();
        for task in self.tasks {
            taken.extend(tokio::time::timeout(2 * ANSWER_TIMEOUT, task).await.unwrap().unwrap());
        }
        taken
    }
}

/// Checks that these requests took all numbers from `first` on, each once. Returns the next one.
fn check(taken: &[TakenNumbers], first: u64) -> u64 {
    let mut by_first = taken.to_vec();
    by_first.sort_unstable_by_key(|request| request.first);
    let mut next = first;
    for request in by_first {
        assert_eq!(request.first, next, "{request:?}");
        next += u64::from(request.count);
    }
    let keys: BTreeMap<_, _> = taken.iter().map(|request| (request.key, request)).collect();
    assert_eq!(keys.len(), taken.len(), "each request has a key of its own");
    next
}

async fn create(cluster: &Cluster, name: &SequenceName, first: u64) {
    let call = |oracle: Oracle| async move {
        match oracle.sequences().create(name, first).await {
            // An earlier try.
            Err(SequenceError::Exists) => Ok(()),
            created => created,
        }
    };
    until_answered(cluster.oracles(), 1, is_transient, call).await.unwrap();
}

async fn next_number(cluster: &Cluster, name: &SequenceName) -> Option<u64> {
    let call = |oracle: Oracle| async move { oracle.sequences().list().await };
    let listed = until_answered(cluster.oracles(), 1, is_transient, call).await.unwrap();
    listed.into_iter().find(|sequence| sequence.name == *name).map(|sequence| sequence.next)
}

/// A request waits for as long as a busy machine takes.
fn patient() -> OracleOptions {
    let mut options = OracleOptions::default();
    options.patience = TEST_TIMEOUT;
    options
}

/// Transfers, and every tenth time the leader loses its power. Then all nodes do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_have_no_gap_and_no_repeat_through_a_hundred_leaders() {
    let mut cluster = Cluster::with_nodes(3, OracleOptions::default()).await;
    let invoices = name("invoices");
    create(&cluster, &invoices, 41).await;
    let callers = Callers::start(&cluster, &invoices);
    for change in 0..100 {
        let leader = cluster.leader().await;
        if change % 10 == 9 {
            cluster.cut_power(leader).await;
            cluster.leader().await;
            cluster.start(leader);
        } else {
            cluster.lead(leader % 3 + 1).await;
        }
        // Each leader takes some.
        let before = next_number(&cluster, &invoices).await;
        let begun = Instant::now();
        while next_number(&cluster, &invoices).await < before.map(|before| before + 20) {
            assert!(begun.elapsed() < ANSWER_TIMEOUT, "no numbers are taken");
        }
    }
    let taken = callers.stop().await;
    let next = check(&taken, 41);
    for id in 1..=3 {
        cluster.cut_power(id).await;
    }
    for id in 1..=3 {
        cluster.start(id);
    }
    assert_eq!(next_number(&cluster, &invoices).await, Some(next));
    let leader = cluster.leader().await;
    for requests in taken.chunks(64) {
        let again = requests
            .iter()
            .map(|request| take(cluster.oracles(), leader, &invoices, request.count, request.key));
        let again = join_all(again).await;
        let answers: Vec<_> = requests.iter().map(|request| Ok(request.first)).collect();
        assert_eq!(again, answers, "{requests:?}");
    }
    assert_eq!(next_number(&cluster, &invoices).await, Some(next));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_refused_with_the_reason() {
    let cluster = Cluster::with_nodes(1, patient()).await;
    let key = cluster.timestamp(1).await;
    let (of, sequences) = (name("a"), cluster.oracle(1).sequences().clone());
    let (no_name, first) = (name("b"), SEQUENCE_NUMBER_MAX - 1);
    assert_eq!(sequences.next(&of, 0, key).await, Err(SequenceError::Count(0)));
    assert_eq!(sequences.next(&of, 65_537, key).await, Err(SequenceError::Count(65_537)));
    assert_eq!(sequences.next(&of, 1, key).await, Err(SequenceError::NoSequence));
    for wrong in [0, SEQUENCE_NUMBER_MAX + 1, u64::MAX] {
        assert_eq!(sequences.create(&of, wrong).await, Err(SequenceError::First(wrong)));
    }
    assert_eq!(sequences.create(&of, first).await, Ok(()));
    assert_eq!(sequences.create(&of, first).await, Err(SequenceError::Exists));
    assert_eq!(sequences.remove(&no_name).await, Err(SequenceError::NoSequence));
    assert_eq!(sequences.next(&of, 3, key).await, Err(SequenceError::UsedUp));
    let ahead = Timestamp { epoch: key.epoch + 3_600_000_000_000, ..key };
    assert_eq!(sequences.next(&of, 1, ahead).await, Err(SequenceError::KeyNotIssued));
    assert_eq!(sequences.next(&of, 2, key).await, Ok(first));
    assert_eq!(sequences.next(&of, 1, key).await, Err(SequenceError::KeyUsed));
    assert_eq!(sequences.next(&of, 2, key).await, Ok(first));
    let listed = sequences.list().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.next)).collect();
    assert_eq!(listed, [("a", SEQUENCE_NUMBER_MAX + 1)]);
    assert_eq!(sequences.remove(&of).await, Ok(()));
    assert_eq!(sequences.list().await, Ok(Vec::new()));
}

/// A follower names the leader, and changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_names_the_leader() {
    let cluster = Cluster::with_nodes_at(SLOW_ROUND_TRIP, 3, patient()).await;
    let of = name("a");
    create(&cluster, &of, 1).await;
    let key = cluster.timestamp(1).await;
    let leader = cluster.leader().await;
    let sequences = cluster.oracle(leader % 3 + 1).sequences().clone();
    let answers = [
        sequences.next(&of, 1, key).await.map(drop),
        sequences.create(&name("b"), 1).await,
        sequences.remove(&of).await,
        sequences.list().await.map(drop),
    ];
    for answer in answers {
        let Err(SequenceError::Unavailable(NodeError::NotLeader { leader: named })) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(named.map(|(node, _)| node), Some(leader));
    }
    let listed = cluster.oracle(leader).sequences().list().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.next)).collect();
    assert_eq!(listed, [("a", 1)]);
}

/// Callers at the same time share commands: far fewer entries than requests.
#[tokio::test]
async fn callers_share_commands() {
    const ROUNDS: u64 = 20;
    let cluster = Cluster::with_nodes(1, patient()).await;
    let of = name("a");
    create(&cluster, &of, 1).await;
    let (node, oracle) = (cluster.node(1), cluster.oracle(1));
    let mut requests = 0;
    let mut entries = 0;
    for _ in 0..ROUNDS {
        let keys = oracle.timestamps(640).await.unwrap();
        let before = node.status().last.unwrap_or_default();
        let asked = keys.timestamps().map(|key| oracle.sequences().next(&of, 1, key));
        let firsts = join_all(asked).await;
        requests += firsts.iter().filter(|first| first.is_ok()).count() as u64;
        entries += node.status().last.unwrap_or_default() - before;
        assert!(firsts.iter().all(Result::is_ok), "{firsts:?}");
    }
    assert_eq!(requests, 640 * ROUNDS);
    assert!(entries <= requests / 16, "{entries} entries for {requests} requests");
    assert_eq!(next_number(&cluster, &of).await, Some(1 + requests));
}

/// More requests than the buffer has room for are refused, and take nothing.
#[tokio::test]
async fn a_full_queue_refuses() {
    let mut options = patient();
    options.buffer = 3;
    let cluster = Cluster::with_nodes(1, options).await;
    let of = name("a");
    create(&cluster, &of, 1).await;
    let oracle = cluster.oracle(1);
    let keys = oracle.timestamps(5).await.unwrap();
    // On one thread, none is proposed before all were asked.
    let asked = keys.timestamps().map(|key| oracle.sequences().next(&of, 1, key));
    let answers = join_all(asked).await;
    let busy = Err(SequenceError::Busy);
    assert_eq!(answers, [Ok(1), Ok(2), Ok(3), busy.clone(), busy]);
}
