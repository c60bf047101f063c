//! Calls that are dropped.
#![allow(clippy::unwrap_used)]

use crate::fake::{HeldAnswers, Issuer};

/// The timestamp of a call that was dropped in flight is lost: the next call has its own request,
/// and a caller that shares the request keeps its own timestamp.
#[tokio::test]
async fn the_timestamp_of_a_dropped_call_is_lost() {
    let held = HeldAnswers::start(&Issuer::new()).await;
    let client = held.fake.client().build().unwrap();
    let call = |count| {
        let client = client.clone();
        tokio::spawn(async move { client.timestamps(count).await.unwrap() })
    };
    let mut busy = Vec::new();
    for requests in 1..=2 {
        busy.push(call(1));
        held.fake.wait_for_requests(requests).await;
    }
    let (dropped, kept) = (call(3), call(2));
    tokio::task::yield_now().await;
    held.release(1);
    held.fake.wait_for_requests(3).await;
    assert_eq!(held.fake.asked(), [1, 1, 5], "both share a request");
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    held.release(2);
    for busy in busy {
        busy.await.unwrap();
    }
    assert_eq!(kept.await.unwrap().first.index, 6);
    let next = call(1);
    held.release(1);
    assert_eq!(next.await.unwrap().first.index, 8);
    assert_eq!(held.fake.asked(), [1, 1, 5, 1]);
}

/// A call does nothing until it is polled, and after it was dropped.
#[tokio::test]
async fn a_call_that_is_not_polled_sends_nothing() {
    let held = HeldAnswers::start(&Issuer::new()).await;
    let client = held.fake.client().build().unwrap();
    drop(client.timestamp());
    held.release(1);
    assert_eq!(client.timestamp().await.unwrap().index, 1);
}
