//! A timestamp comes from a request that was sent after its call began.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use esker_client::{Error, Range, Timestamp};
use esker_oracle::history::{Call, check, in_milliseconds};
use parking_lot::Mutex;

use crate::fake::{CLUSTER, Fake, HeldAnswers, Issuer, Reply, TEST_TIMEOUT, members};

/// The answer of a request that is in flight was decided before the call began: another client
/// has got a higher timestamp since.
#[tokio::test]
async fn a_call_joins_no_request_that_was_sent() {
    let issuer = Issuer::new();
    let (held, other) = (HeldAnswers::start(&issuer).await, Fake::issuing(&issuer).await);
    let (client, other) = (held.fake.client().build().unwrap(), other.client().build().unwrap());
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.timestamp().await.unwrap() }
    });
    held.fake.wait_for_requests(1).await;
    let before = other.timestamp().await.unwrap();
    let second = tokio::spawn(async move { client.timestamp().await.unwrap() });
    // If it joined the first request, it would send nothing.
    drop(tokio::time::timeout(Duration::from_millis(300), held.fake.wait_for_requests(2)).await);
    held.release(2);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert!(first < before && before < second, "{first} {before} {second}");
}

fn next(random: &AtomicU64) -> u64 {
    let step = |x: u64| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    random.fetch_update(SeqCst, SeqCst, step).unwrap() >> 33
}

/// Two clients of two nodes that fail, name one another, lose answers and are slow at random; some
/// calls are given up. Every other call is for timestamps of 64 bits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_are_unique_and_in_order() {
    let issuer = Issuer::new();
    let random = Arc::new(AtomicU64::new(0x5eed));
    let addresses = Arc::new(Mutex::new(Vec::<String>::new()));
    let mut nodes = Vec::new();
    for node in 0..2 {
        let (issuer, random) = (Arc::clone(&issuer), Arc::clone(&random));
        let addresses = Arc::clone(&addresses);
        nodes.push(
            Fake::start(move |count| {
                let mut reply = Reply::range(issuer.take(count));
                match next(&random) % 30 {
                    0 => reply = Reply::new(500, "no node leads"),
                    1 => reply = Reply::not_leader(&addresses.lock()[1 - node]),
                    2 => reply = Reply::new(503, "busy").header("Retry-After", "0"),
                    3 => reply = Reply::new(200, [7; 12]),
                    _ => {}
                }
                let slow = Duration::from_micros(next(&random) % 2000);
                async move {
                    tokio::time::sleep(slow).await;
                    reply
                }
            })
            .await,
        );
    }
    *addresses.lock() = nodes.iter().map(|node| node.address.clone()).collect();
    for node in &nodes {
        let all: Vec<_> = addresses.lock().clone();
        node.members(members(None, &[&all[0], &all[1]], CLUSTER));
    }
    let clients = [nodes[0].client().build().unwrap(), nodes[1].client().build().unwrap()];
    let begun = Instant::now();
    let now = move || begun.elapsed().as_nanos() as u64;
    let tasks: Vec<_> = (0..40)
        .map(|task| {
            let (client, random) = (clients[task % 2].clone(), Arc::clone(&random));
            tokio::spawn(async move {
                let mut calls = Vec::new();
                for number in 0..30 {
                    let (called, count) = (now(), (next(&random) % 5 + 1) as u32);
                    let call = async {
                        if (task + number) % 2 == 0 {
                            return client.timestamps(count).await;
                        }
                        let numbers = client.timestamps_u64(count).await?;
                        assert_eq!(numbers.clone().count() as u32, count);
                        let first = Timestamp::from_u64(*numbers.start()).unwrap();
                        Ok::<_, Error>(Range { first, count })
                    };
                    let patience = match next(&random) % 8 {
                        0 => Duration::from_micros(next(&random) % 1500),
                        _ => TEST_TIMEOUT,
                    };
                    if let Ok(range) = tokio::time::timeout(patience, call).await {
                        calls.push(Call { called, returned: now(), range: range.unwrap() });
                    }
                }
                calls
            })
        })
        .collect();
    let mut calls = Vec::new();
    for task in tasks {
        calls.extend(task.await.unwrap());
    }
    assert!(calls.len() > 900, "{}", calls.len());
    check(&in_milliseconds(&calls)).unwrap();
    let stats = clients.map(|client| client.stats());
    assert!(stats.iter().all(|stats| stats.retries > 0 && stats.failures == 0), "{stats:?}");
}

/// A cluster that lost its data, or another one at the same address, issues lower timestamps.
#[tokio::test]
async fn a_timestamp_that_is_not_above_the_last_is_an_error() {
    let issuer = Issuer::new();
    let fake = Fake::issuing(&issuer).await;
    let client = fake.client().build().unwrap();
    let highest = client.timestamps(9).await.unwrap().last().unwrap();
    for lower in [1, highest.index] {
        let mut range = issuer.take(1);
        range.first.index = lower;
        fake.answers(move |_| Reply::range(range));
        match client.timestamp().await {
            Err(Error::NotMonotonic { address, got, highest: before }) => {
                assert_eq!((&address, got, before), (&fake.address, range.first, highest));
            }
            other => assert!(matches!(other, Err(Error::NotMonotonic { .. })), "{other:?}"),
        }
    }
    fake.answers(move |count| Reply::range(issuer.take(count)));
    assert!(client.timestamp().await.unwrap() > highest);
}
