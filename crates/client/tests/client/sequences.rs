//! Numbers of sequences: one key in all attempts, and errors that say what may have been taken.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_client::{AttemptErrorKind, Client, Error, SequenceError, SequenceErrorKind, Timestamp};
use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::fake::{Fake, Issuer, Reply, SequenceQuery, TEST_TIMEOUT, wait_until};

const NAME: &str = "invoices";
const KEY: Timestamp = Timestamp { epoch: 7, index: 1_000_000 };

/// A failure of a request.
enum Fault {
    /// Nothing is taken, and this is the answer.
    Refused(Reply),
    /// The numbers are taken, and this is the answer.
    Lost(Reply),
    /// The numbers are taken, and there is no answer.
    Silent,
}

#[derive(Default)]
struct SeriesState {
    /// The numbers that were taken, and the ranges by their keys.
    taken: u64,
    answers: BTreeMap<String, (u64, u32)>,
    faults: VecDeque<Fault>,
}

/// The sequence of a cluster, and the faults of its next requests.
#[derive(Default)]
struct Series(Mutex<SeriesState>);

impl Series {
    fn with_faults(faults: impl IntoIterator<Item = Fault>) -> Arc<Self> {
        let series = Self::default();
        series.0.lock().faults.extend(faults);
        Arc::new(series)
    }

    fn take(&self, query: &SequenceQuery) -> Reply {
        let mut state = self.0.lock();
        let next = state.taken + 1;
        let answer = *state.answers.entry(query.key.clone()).or_insert((next, query.count));
        if answer.0 == next {
            state.taken += u64::from(query.count);
        }
        let (first, n) = answer;
        let body = serde_json::json!({"name": query.name, "first": first, "n": n});
        Reply::new(200, body.to_string())
    }

    async fn answer(self: Arc<Self>, query: SequenceQuery) -> Reply {
        let fault = self.0.lock().faults.pop_front();
        match fault {
            Some(Fault::Refused(reply)) => reply,
            Some(Fault::Lost(reply)) => {
                self.take(&query);
                reply
            }
            Some(Fault::Silent) => {
                self.take(&query);
                std::future::pending().await
            }
            None => self.take(&query),
        }
    }

    /// Starts a node that leads, and has this sequence.
    async fn leader(self: &Arc<Self>) -> Fake {
        let (fake, series) = (Fake::issuing(&Issuer::new()).await, Arc::clone(self));
        fake.answers_sequences(move |query| Arc::clone(&series).answer(query));
        fake
    }

    fn taken(&self) -> u64 {
        self.0.lock().taken
    }
}

async fn take(
    client: &Client,
    key: Option<Timestamp>,
) -> Result<RangeInclusive<u64>, SequenceError> {
    client.sequence_next(NAME, 3, key).await
}

/// Answers that were lost after the numbers were taken, and answers that took none, in any order:
/// the numbers are taken once. Each attempt with a key of its own took them four times.
#[tokio::test]
async fn all_attempts_have_one_key() {
    let series = Series::with_faults([
        Fault::Refused(Reply::new(409, "node (1) is not the leader (2)")),
        Fault::Refused(Reply::new(503, "no node leads").header("Retry-After", "1")),
        Fault::Lost(Reply::new(500, "no answer in time")),
        Fault::Lost(Reply::new(502, "<html>")),
        Fault::Lost(Reply::new(200, r#"{"name":"orders","first":1,"n":3}"#)),
        Fault::Lost(Reply::new(200, r#"{"name":"invoices","first":"#)),
        Fault::Refused(Reply::new(405, "a proxy")),
    ]);
    let leader = series.leader().await;
    let client = leader.client().build().unwrap();
    assert_eq!(take(&client, None).await.unwrap(), 1..=3);
    assert_eq!(series.taken(), 3);
    let queries = leader.sequence_queries();
    assert_eq!(queries.len(), 8);
    assert!(queries.iter().all(|query| *query == queries[0]), "{queries:?}");
    let key = queries[0].key.parse::<Timestamp>().unwrap();
    assert_eq!((key.index, queries[0].name.as_str(), queries[0].count), (1, NAME, 3));
    assert_eq!(leader.asked(), [1], "the key is one timestamp");
    let stats = client.stats();
    assert_eq!((stats.sequence_requests, stats.retries, stats.failures), (8, 7, 0), "{stats:?}");
    // A call has a key of its own, and the numbers after.
    assert_eq!(take(&client, None).await.unwrap(), 4..=6);
    assert_ne!(leader.sequence_queries()[8].key, queries[0].key);
}

#[tokio::test]
async fn the_same_key_returns_the_same_numbers() {
    let series = Series::with_faults([]);
    let leader = series.leader().await;
    for _ in 0..2 {
        let client = leader.client().build().unwrap();
        assert_eq!(take(&client, Some(KEY)).await.unwrap(), 1..=3);
    }
    assert_eq!((series.taken(), leader.asked().len()), (3, 0));
    assert_eq!(leader.sequence_queries()[0].key, KEY.to_string());
}

/// The connection ends after the numbers were taken and before the answer.
#[tokio::test]
async fn a_lost_connection_is_followed_by_the_same_request() {
    let series = Series::with_faults([Fault::Silent]);
    let leader = series.leader().await;
    let client = leader.client().build().unwrap();
    let call = tokio::spawn(async move { take(&client, None).await });
    wait_until(async || leader.sequence_queries().len() == 1).await;
    leader.cut();
    assert_eq!(call.await.unwrap().unwrap(), 1..=3);
    let queries = leader.sequence_queries();
    assert_eq!((queries.len(), series.taken()), (2, 3));
    assert_eq!(queries[0], queries[1]);
}

/// A follower names the leader, which gets the same request.
#[tokio::test]
async fn the_leader_that_a_follower_names_is_asked() {
    let series = Series::with_faults([]);
    let (leader, follower) = (series.leader().await, Fake::issuing(&Issuer::new()).await);
    let named = leader.address.clone();
    follower.answers_sequences(move |_| std::future::ready(Reply::not_leader(&named)));
    let client = follower.client().build().unwrap();
    assert_eq!(take(&client, Some(KEY)).await.unwrap(), 1..=3);
    assert_eq!(take(&client, None).await.unwrap(), 4..=6);
    assert_eq!((follower.sequence_queries().len(), leader.sequence_queries().len()), (1, 2));
    assert_eq!(follower.sequence_queries()[0], leader.sequence_queries()[0]);
}

/// A refusal is not repeated, and has a type.
#[tokio::test]
async fn refusals_have_their_types() {
    type IsKind = fn(&SequenceErrorKind) -> bool;
    let refusals: [(u16, &str, IsKind); 7] = [
        (404, "", |kind| matches!(kind, SequenceErrorKind::NoSequence(_))),
        (410, "", |kind| matches!(kind, SequenceErrorKind::KeyTooOld(_))),
        (422, "key-used", |kind| matches!(kind, SequenceErrorKind::KeyUsed(_))),
        (422, "key-not-issued", |kind| matches!(kind, SequenceErrorKind::KeyNotIssued(_))),
        (422, "used-up", |kind| matches!(kind, SequenceErrorKind::UsedUp(_))),
        (422, "", |kind| matches!(kind, SequenceErrorKind::Refused(_))),
        (400, "", |kind| matches!(kind, SequenceErrorKind::Refused(_))),
    ];
    for (status, refusal, is_kind) in refusals {
        let reply = Reply::new(status, "the node says why").header("Esker-Refusal", refusal);
        let series = Series::with_faults([Fault::Refused(reply)]);
        let leader = series.leader().await;
        let client = leader.client().build().unwrap();
        let error = take(&client, Some(KEY)).await.unwrap_err();
        assert!(is_kind(&error.kind), "{status} {refusal}: {error:?}");
        assert_eq!((error.key, error.may_have_taken), (Some(KEY), false));
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("the node says why"), "{cause}");
        assert_eq!((leader.sequence_queries().len(), client.stats().failures), (1, 1));
    }
}

/// An attempt may have taken numbers before the key became too old.
#[tokio::test]
async fn a_refusal_after_a_lost_answer_says_that_the_outcome_is_unknown() {
    for (first, is_unknown) in [
        (Fault::Lost(Reply::new(500, "no answer in time")), true),
        (Fault::Refused(Reply::new(503, "no node leads")), false),
    ] {
        let series = Series::with_faults([first, Fault::Refused(Reply::new(410, "too old"))]);
        let leader = series.leader().await;
        let error = take(&leader.client().build().unwrap(), Some(KEY)).await.unwrap_err();
        assert!(matches!(error.kind, SequenceErrorKind::KeyTooOld(_)), "{error:?}");
        assert_eq!((error.key, error.may_have_taken), (Some(KEY), is_unknown));
        assert_eq!(error.to_string().contains("is unknown"), is_unknown, "{error}");
    }
}

/// The deadline passes while the answer is lost. The error has the key, with which another call
/// gets the numbers.
#[tokio::test]
async fn the_error_of_a_deadline_has_the_key() {
    let series = Series::with_faults((0..10_000).map(|_| Fault::Silent));
    let leader = series.leader().await;
    let client = leader.client().build().unwrap();
    let short = Duration::from_millis(100);
    // On a slow machine a call may end before it has sent anything.
    let error = loop {
        let called = client.sequence_next_by(NAME, 3, None, Instant::now() + short).await;
        let error = called.unwrap_err();
        assert!(matches!(error.kind, SequenceErrorKind::Deadline { .. }), "{error:?}");
        if error.may_have_taken {
            break error;
        }
    };
    let key = error.key.unwrap();
    assert!(error.to_string().contains(&key.to_string()), "{error}");
    wait_until(async || !leader.sequence_queries().is_empty()).await;
    series.0.lock().faults.clear();
    assert_eq!(take(&client, Some(key)).await.unwrap(), 1..=3);
    assert_eq!(series.taken(), 3);
    // One that has passed sends nothing.
    let sent = leader.sequence_queries().len();
    let passed = client.sequence_next_by(NAME, 3, Some(KEY), Instant::now()).await.unwrap_err();
    assert_eq!((passed.key, passed.may_have_taken), (Some(KEY), false));
    assert_eq!(leader.sequence_queries().len(), sent);
}

/// The error said that nothing was taken, and the request was sent after it.
#[tokio::test]
async fn a_call_that_ended_while_connecting_sends_nothing() {
    let series = Series::with_faults([]);
    let leader = series.leader().await;
    let gate = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::builder().endpoint(gate.local_addr().unwrap().to_string());
    let client = client.timeout(TEST_TIMEOUT).connect_timeout(TEST_TIMEOUT).build().unwrap();
    let deadline = Instant::now() + Duration::from_millis(50);
    let error = client.sequence_next_by(NAME, 3, Some(KEY), deadline).await.unwrap_err();
    assert!(matches!(error.kind, SequenceErrorKind::Deadline { .. }), "{error:?}");
    assert!(!error.may_have_taken);
    let other = Timestamp { index: 7, ..KEY };
    let call = tokio::spawn(async move { take(&client, Some(other)).await });
    let node = leader.address.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = gate.accept().await.unwrap();
            let mut node = TcpStream::connect(&node).await.unwrap();
            tokio::spawn(async move { drop(copy_bidirectional(&mut stream, &mut node).await) });
        }
    });
    assert_eq!(call.await.unwrap().unwrap(), 1..=3);
    let keys: Vec<_> = leader.sequence_queries().into_iter().map(|query| query.key).collect();
    assert_eq!(keys, [other.to_string()]);
}

/// The deadline of a cluster that fails has its last failure as source.
#[tokio::test]
async fn the_error_of_a_deadline_has_the_last_failure() {
    let leader = Fake::issuing(&Issuer::new()).await;
    leader.answers_sequences(|_| std::future::ready(Reply::new(500, "the disk is slow")));
    let client = leader.client().timeout(Duration::from_millis(200)).build().unwrap();
    let last = loop {
        match take(&client, Some(KEY)).await.unwrap_err().kind {
            SequenceErrorKind::Deadline { last: Some(last) } => break last,
            SequenceErrorKind::Deadline { last: None } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(last.address, leader.address);
    let expected = AttemptErrorKind::Status { status: 500, text: "the disk is slow".into() };
    assert_eq!(last.kind, expected);
}

#[tokio::test]
async fn invalid_names_and_counts_send_nothing() {
    let leader = Series::with_faults([]).leader().await;
    let client = leader.client().build().unwrap();
    for name in ["", "in voices", "../up", "a?key=1"] {
        let error = client.sequence_next(name, 1, None).await.unwrap_err();
        assert!(matches!(&error.kind, SequenceErrorKind::Name(wrong) if wrong == name), "{error}");
    }
    for count in [0, 65_537] {
        let error = client.sequence_next(NAME, count, None).await.unwrap_err();
        assert!(matches!(error.kind, SequenceErrorKind::Count(wrong) if wrong == count), "{error}");
        assert_eq!((error.key, error.may_have_taken), (None, false));
    }
    assert_eq!((leader.asked(), leader.sequence_queries()), (vec![], vec![]));
    assert_eq!(client.stats().failures, 6);
}

/// Calls are bounded. One that was dropped ends with its attempt, and makes room.
#[tokio::test]
async fn more_calls_than_the_queue_takes_are_busy() {
    let leader = Series::with_faults([Fault::Silent]).leader().await;
    let client = leader.client().queue(1).build().unwrap();
    let held = client.clone();
    let held = tokio::spawn(async move { take(&held, Some(KEY)).await });
    wait_until(async || leader.sequence_queries().len() == 1).await;
    let error = take(&client, Some(KEY)).await.unwrap_err();
    assert!(matches!(error.kind, SequenceErrorKind::Client(Error::Busy { most: 1 })), "{error}");
    held.abort();
    drop(held.await);
    // It makes no second attempt, which would have an answer.
    leader.cut();
    wait_until(async || take(&client, Some(KEY)).await.is_ok()).await;
    assert_eq!(leader.sequence_queries().len(), 2);
}

/// The runtime that awaits a call has neither timers nor sockets.
#[test]
fn calls_can_be_awaited_on_any_executor() {
    let nodes = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let series = Series::with_faults([]);
    let leader = nodes.block_on(series.leader());
    let client = leader.client().timeout(TEST_TIMEOUT).build().unwrap();
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(bare.block_on(take(&client, None)).unwrap(), 1..=3);
}
