//! Calls end by their deadlines.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use esker_client::{AttemptErrorKind, Client, Error};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::fake::{
    CLUSTER, Fake, HeldAnswers, Issuer, Reply, TEST_TIMEOUT, last_failure, members, wait_until,
};

const SHORT_DEADLINE: Duration = Duration::from_millis(100);

/// A port without a listener, and one where nothing answers.
#[tokio::test]
async fn the_deadline_holds_when_nothing_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // No other test listens here, and no connection comes from here.
    let closed = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let (silent_at, closed_at) = (silent.local_addr().unwrap(), closed.local_addr().unwrap());
    drop(closed);
    for address in [silent_at, closed_at] {
        let client = Client::builder().endpoint(address.to_string()).timeout(SHORT_DEADLINE);
        let client = client.connect_timeout(Duration::from_millis(20)).build().unwrap();
        let begun = Instant::now();
        let error = timeout(TEST_TIMEOUT, client.timestamp()).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
        assert!(begun.elapsed() >= SHORT_DEADLINE);
        let cause = last_failure(&client).await;
        assert_eq!(cause.address, address.to_string());
        match cause.kind {
            AttemptErrorKind::NoAnswer { .. } => assert_eq!(address, silent_at),
            AttemptErrorKind::Connection(why) => {
                assert_eq!(address, closed_at);
                assert!(why.contains("refused"), "{why}");
            }
            other => unreachable!("{other:?}"),
        }
        wait_until(async || {
            client.timestamp().await.unwrap_err();
            client.stats().retries >= 2
        })
        .await;
        // Each attempt waits for longer than the one before, until the wait has 50 ms at least.
        let (stats, attempts_max) = (client.stats(), 10 + begun.elapsed().as_millis() / 50);
        assert!(stats.failures >= 2 && u128::from(stats.retries) <= attempts_max, "{stats:?}");
    }
}

/// Callers of one request, and those that wait for the next one, have deadlines of their own.
#[tokio::test]
async fn callers_that_share_a_request_have_their_own_deadlines() {
    let held = HeldAnswers::start(&Issuer::new()).await;
    let client = held.fake.client().build().unwrap();
    let call = |patience| {
        let client = client.clone();
        tokio::spawn(async move { client.timestamps_by(1, Instant::now() + patience).await })
    };
    let mut busy = Vec::new();
    for requests in 1..=2 {
        busy.push(call(TEST_TIMEOUT));
        held.fake.wait_for_requests(requests).await;
    }
    let begun = Instant::now();
    let in_flight = [call(TEST_TIMEOUT), call(SHORT_DEADLINE)];
    tokio::task::yield_now().await;
    held.release(1);
    held.fake.wait_for_requests(3).await;
    // No request may be sent for these.
    let waiting = [call(SHORT_DEADLINE), call(TEST_TIMEOUT)];
    let [long, short] = in_flight;
    let [waiting_short, waiting_long] = waiting;
    for short in [short, waiting_short] {
        let error = timeout(TEST_TIMEOUT, short).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
    }
    // Before those of the other callers.
    assert!(begun.elapsed() >= SHORT_DEADLINE && begun.elapsed() < TEST_TIMEOUT / 2);
    assert_eq!(held.fake.asked(), [1, 1, 2]);
    held.release(3);
    let mut issued = Vec::new();
    for call in busy.into_iter().chain([long, waiting_long]) {
        issued.push(call.await.unwrap().unwrap().first.index);
    }
    // What the expired callers would have had is lost.
    assert_eq!(issued, [1, 2, 3, 6]);
}

#[tokio::test]
async fn a_deadline_that_has_passed_sends_nothing() {
    let fake = Fake::issuing(&Issuer::new()).await;
    let client = fake.client().build().unwrap();
    let now = Instant::now();
    let errors = [
        client.timestamps_by(1, now).await.unwrap_err(),
        client.timestamps_u64_by(1, now).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Deadline { last: None }), "{error}");
    }
    client.timestamp().await.unwrap();
    assert_eq!(fake.asked(), [1]);
}

/// A node that is stopped keeps its connections, and answers nothing over them.
#[tokio::test]
async fn a_node_that_falls_silent_is_left() {
    let issuer = Issuer::new();
    let (first, second) = (Fake::issuing(&issuer).await, Fake::issuing(&issuer).await);
    first.members(members(None, &[&first.address, &second.address], CLUSTER));
    let client = first.client().timeout(TEST_TIMEOUT).build().unwrap();
    client.timestamp().await.unwrap();
    first.freeze();
    client.timestamp().await.unwrap();
    assert_eq!(client.stats().leader_changes, 1);
}

/// Deadlines that are shorter than the waits between attempts, and than leaving a silent node: the
/// calls after it get timestamps.
#[tokio::test]
async fn short_deadlines_do_not_keep_a_client_from_the_leader() {
    let issuer = Issuer::new();
    let (first, second) = (Fake::issuing(&issuer).await, Fake::issuing(&issuer).await);
    first.members(members(None, &[&first.address, &second.address], CLUSTER));
    let client = first.client().timeout(Duration::from_millis(30)).build().unwrap();
    served_again(&client).await;
    for fake in [&first, &second] {
        fake.answers(|_| Reply::new(500, "no node leads"));
    }
    let begun = Instant::now();
    // The waits grow to 100 ms meanwhile.
    while begun.elapsed() < SHORT_DEADLINE * 10 {
        client.timestamp().await.unwrap_err();
    }
    for fake in [&first, &second] {
        let issuer = issuer.clone();
        fake.answers(move |count| Reply::range(issuer.take(count)));
    }
    served_again(&client).await;
    let asked = first.asked().len();
    served_again(&client).await;
    let leader = if first.asked().len() > asked { &first } else { &second };
    leader.freeze();
    served_again(&client).await;
}

/// Calls until one is answered.
async fn served_again(client: &Client) {
    let begun = Instant::now();
    while let Err(error) = client.timestamp().await {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{error}");
    }
}
