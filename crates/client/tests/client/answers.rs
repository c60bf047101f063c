//! Every answer that is not the timestamps.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use esker_client::{AttemptErrorKind, Error, Range};

use crate::fake::{CLUSTER, Fake, Issuer, Reply, TEST_TIMEOUT, last_failure, members, wait_until};

fn body(epoch: u64, index: u64, count: u64) -> Vec<u8> {
    [epoch, index, count].iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// After failures that may pass, and those of one node, the client asks again.
#[tokio::test]
async fn other_statuses_and_malformed_answers_are_retried() {
    let mut replies = vec![
        Reply::new(500, "no node leads"),
        Reply::new(502, vec![0xff; 100]),
        Reply::new(404, "no such path"),
        Reply::new(405, ""),
        Reply::new(204, ""),
        Reply::new(302, "").header("Location", "http://127.0.0.1:1/timestamp"),
        Reply::new(409, "node (1) is not the leader (2)"),
        Reply::new(503, "too many requests are waiting").header("Retry-After", "0"),
        Reply::new(503, "no header"),
        Reply::new(500, vec![b'x'; 1 << 20]),
    ];
    for leader in ["http://127.0.0.1:1", "127.0.0.1", "0.0.0.0:80", "a b:80", "", "evil/:80"] {
        replies.push(Reply::not_leader(leader));
    }
    let one = body(7, 1, 1);
    let malformed =
        [&one[..23], &one[..16], &[&one[..], b"x"].concat(), b"", &body(7, 1, 2), &body(7, 0, 1)];
    replies.extend(malformed.map(|body| Reply::new(200, body)));
    for reply in replies {
        let shown = format!("{reply:?}");
        let fake = Fake::scripted(vec![reply], &Issuer::new()).await;
        let client = fake.client().build().unwrap();
        assert_eq!(client.timestamp().await.unwrap().index, 1, "{shown}");
        assert_eq!(fake.asked(), [1, 1], "{shown}");
        let stats = client.stats();
        assert_eq!((stats.retries, stats.failures, stats.batches), (1, 0, 1), "{shown}");
    }
    let fake = Fake::scripted(vec![Reply::new(200, body(7, u64::MAX, 2))], &Issuer::new()).await;
    let range = fake.client().build().unwrap().timestamps(2).await.unwrap();
    assert_eq!(range.first.index, 1);
}

/// Another node is asked before the same one again.
#[tokio::test]
async fn another_node_is_asked_first() {
    let issuer = Issuer::new();
    for reply in [Reply::new(500, ""), Reply::new(200, "?"), Reply::new(409, "")] {
        let wrong = Fake::start(move |_| std::future::ready(reply.clone())).await;
        let right = Fake::issuing(&issuer).await;
        wrong.members(members(None, &[&wrong.address, &right.address], CLUSTER));
        let client = wrong.client().build().unwrap();
        client.timestamp().await.unwrap();
        client.timestamp().await.unwrap();
        assert_eq!((wrong.asked(), right.asked()), (vec![1], vec![1, 1]));
    }
}

/// The same node, not before the time that it asks for.
#[tokio::test]
async fn an_overloaded_leader_is_asked_later() {
    let busy = Reply::new(503, "too many requests are waiting").header("Retry-After", "1");
    let fake = Fake::scripted(vec![busy], &Issuer::new()).await;
    let client = fake.client().build().unwrap();
    let begun = Instant::now();
    client.timestamp().await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!((fake.asked(), fake.connections()), (vec![1, 1], 1));
}

/// A request that is wrong stays wrong.
#[tokio::test]
async fn a_refused_request_is_not_repeated() {
    let why = "invalid n param, must be a number >= 1 and <= 10 if provided";
    let fake = Fake::scripted(vec![Reply::new(400, why)], &Issuer::new()).await;
    let client = fake.client().build().unwrap();
    let Err(Error::Refused(cause)) = client.timestamps(11).await else { unreachable!() };
    assert_eq!(cause.kind, AttemptErrorKind::Status { status: 400, text: why.into() });
    assert!(cause.to_string().contains(&fake.address) && cause.to_string().contains(why));
    assert_eq!(fake.asked(), [11]);
}

/// An address may come to belong to another cluster, whose timestamps have no order with those
/// before.
#[tokio::test]
async fn a_node_of_another_cluster_is_not_asked() {
    let (issuer, higher) = (Issuer::new(), Issuer::new());
    let Range { .. } = higher.take(1000);
    let (own, other) = (Fake::issuing(&issuer).await, Fake::issuing(&higher).await);
    other.members(members(None, &[&other.address], "another"));
    own.members(members(None, &[&own.address, &other.address], CLUSTER));
    let client = own.client().timeout(Duration::from_millis(200)).build().unwrap();
    client.timestamps_by(1, Instant::now() + TEST_TIMEOUT).await.unwrap();
    own.kill().await;
    wait_until(async || {
        last_failure(&client).await;
        other.connections() > 0
    })
    .await;
    assert!(other.asked().is_empty());
    // Not by a client that names the cluster, either, although it reaches no other.
    let named = other.client().cluster(CLUSTER).timeout(Duration::from_millis(200));
    let cause = last_failure(&named.build().unwrap()).await;
    assert!(
        matches!(&cause.kind, AttemptErrorKind::OtherCluster(id) if id == "another"),
        "{cause:?}"
    );
    assert!(other.asked().is_empty());
}

/// A server that answers `/members` with something else is no node.
#[tokio::test]
async fn what_has_no_members_is_no_node() {
    let fake = Fake::issuing(&Issuer::new()).await;
    let client = fake.client().timeout(Duration::from_millis(100)).build().unwrap();
    for wrong in [
        Reply::new(200, "ok"),
        Reply::new(404, "{\"members\":[]}"),
        Reply::new(200, vec![b' '; 2 << 20]),
    ] {
        fake.members(wrong);
        let connections = fake.connections();
        wait_until(async || {
            last_failure(&client).await;
            fake.connections() > connections
        })
        .await;
    }
    assert!(fake.asked().is_empty());
}
