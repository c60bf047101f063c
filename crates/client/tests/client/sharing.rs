//! Concurrent callers share requests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use crate::fake::{Fake, Issuer, Reply};

/// Callers that come at the same time, and callers that come while requests are in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_callers_share_few_requests() {
    let issuer = Issuer::new();
    let slow = issuer.clone();
    let fake = Fake::start(move |count| {
        let range = slow.take(count);
        async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Reply::range(range)
        }
    })
    .await;
    let client = fake.client().build().unwrap();
    for round in 1..=2 {
        let callers: Vec<_> = (0..1000)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.timestamp().await.unwrap() })
            })
            .collect();
        let mut issued = BTreeSet::new();
        for caller in callers {
            issued.insert(caller.await.unwrap());
        }
        assert_eq!(issued.len(), 1000, "each has its own");
        assert!(fake.asked().len() <= 15 * round, "{:?}", fake.asked());
    }
    let stats = client.stats();
    assert_eq!((stats.timestamps, stats.failures, stats.retries), (2000, 0, 0));
    assert_eq!(stats.requests, fake.asked().len() as u64);
    assert_eq!((stats.batches, stats.connections), (stats.requests, 1));
    assert_eq!((fake.connections(), fake.asked().iter().sum::<u32>()), (1, 2000));
}

/// Ranges are whole and apart, and a request has no more than it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_are_whole_and_requests_have_a_limit() {
    let fake = Fake::issuing(&Issuer::new()).await;
    let client = fake.client().max_timestamps(100).build().unwrap();
    let callers: Vec<_> = (0..200_u32)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(
                async move { (n % 100 + 1, client.timestamps(n % 100 + 1).await.unwrap()) },
            )
        })
        .collect();
    let mut issued = BTreeSet::new();
    let mut wanted = 0;
    for caller in callers {
        let (count, range) = caller.await.unwrap();
        assert_eq!(range.count, count);
        wanted += count as usize;
        issued.extend(range.timestamps());
    }
    assert_eq!(issued.len(), wanted);
    assert!(fake.asked().iter().all(|count| *count <= 100), "{:?}", fake.asked());
    let whole = fake.client().build().unwrap();
    assert_eq!(whole.timestamps(65_536).await.unwrap().timestamps().count(), 65_536);
}

/// One caller alone does not wait for others.
#[tokio::test]
async fn a_caller_alone_has_a_request_of_its_own() {
    let fake = Fake::issuing(&Issuer::new()).await;
    let client = fake.client().build().unwrap();
    let mut last = None;
    for _ in 0..20 {
        let issued = client.timestamp().await.unwrap();
        assert!(Some(issued) > last);
        last = Some(issued);
    }
    assert_eq!(fake.asked(), [1; 20]);
}
