//! The bound of the queue, and its end.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use esker_client::{Client, Error};

use crate::fake::{Fake, Held, Issuer, LONG};

/// Requirements: E-10.
#[tokio::test]
async fn more_callers_than_the_queue_takes_are_busy() {
    let held = Held::start(&Issuer::new()).await;
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

/// Callers on another runtime are not left waiting for ever.
#[test]
fn a_client_whose_runtime_ended_is_closed() {
    let of_client = tokio::runtime::Runtime::new().unwrap();
    let of_caller = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (held, client) = of_client.block_on(async {
        let held = Held::start(&Issuer::new()).await;
        let client = held.fake.client().build().unwrap();
        (held, client)
    });
    let waiting = of_caller.spawn({
        let client = client.clone();
        async move { client.timestamp().await }
    });
    of_caller.block_on(async {
        tokio::time::timeout(LONG, held.fake.wait_for_requests(1)).await.unwrap();
        of_client.shutdown_background();
        let waited = tokio::time::timeout(LONG, waiting).await.unwrap();
        for called in [waited.unwrap(), client.timestamp().await] {
            assert!(matches!(called, Err(Error::Closed)), "{called:?}");
        }
    });
}

/// The tasks and the connection of a client end with its last handle.
#[tokio::test]
async fn a_dropped_client_leaves_nothing() {
    let fake = Fake::issuing(&Issuer::new()).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let client = fake.client().build().unwrap();
    client.clone().timestamp().await.unwrap();
    assert!(tasks() > before);
    drop(client);
    let ended = async {
        while tasks() > before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, ended).await.unwrap();
}
