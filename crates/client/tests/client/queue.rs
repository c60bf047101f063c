//! The bound of the queue.
#![allow(clippy::unwrap_used)]

use esker_client::{Client, Error};

use crate::fake::{HeldAnswers, Issuer};

#[tokio::test]
async fn more_callers_than_the_queue_takes_are_busy() {
    let held = HeldAnswers::start(&Issuer::new()).await;
    let client = held.fake.client().queue(3).build().unwrap();
    let call = |client: &Client| {
        let client = client.clone();
        tokio::spawn(async move { client.timestamp().await })
    };
    let mut kept = Vec::new();
    for requests in 1..=2 {
        kept.push(call(&client));
        held.fake.wait_for_requests(requests).await;
    }
    let waiting: Vec<_> = (0..3).map(|_| call(&client)).collect();
    tokio::task::yield_now().await;
    let error = call(&client).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Busy { most: 3 }), "{error}");
    // Those that are dropped make room.
    for dropped in waiting {
        dropped.abort();
        drop(dropped.await);
    }
    kept.push(call(&client));
    tokio::task::yield_now().await;
    held.release(3);
    for call in kept {
        call.await.unwrap().unwrap();
    }
    assert_eq!(held.fake.asked(), [1; 3]);
}
