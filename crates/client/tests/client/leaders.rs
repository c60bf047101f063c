//! Finding the leader and following it.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use esker_client::{AttemptErrorKind, Error};

use crate::fake::{CLUSTER, Fake, Issuer, Reply, members};

/// By the header of a 409, also to a node that no list has; and the next call goes there at once.
#[tokio::test]
async fn the_leader_that_a_follower_names_is_asked() {
    let issuer = Issuer::new();
    let leader = Fake::issuing(&issuer).await;
    let named = leader.address.clone();
    let follower = Fake::start(move |_| std::future::ready(Reply::not_leader(&named))).await;
    let client = follower.client().build().unwrap();
    for _ in 0..3 {
        client.timestamp().await.unwrap();
    }
    assert_eq!((follower.asked(), leader.asked()), (vec![1], vec![1; 3]));
    assert_eq!((client.stats().connections, client.stats().leader_changes), (2, 0));
}

/// By the list of members, without a request to a follower.
#[tokio::test]
async fn the_leader_of_the_list_is_asked() {
    let issuer = Issuer::new();
    let (follower, leader) = (Fake::issuing(&issuer).await, Fake::issuing(&issuer).await);
    follower.members(members(Some(&leader.address), &[&follower.address], CLUSTER));
    let client = follower.client().build().unwrap();
    client.timestamp().await.unwrap();
    assert_eq!((follower.asked(), leader.asked()), (vec![], vec![1]));
}

/// The list may have an address that this client cannot reach: the node that it did reach is asked.
#[tokio::test]
async fn a_leader_that_cannot_be_reached_where_it_says_is_asked_where_it_can() {
    let fake = Fake::issuing(&Issuer::new()).await;
    let elsewhere = Fake::issuing(&Issuer::new()).await.kill().await;
    fake.members(members(Some(&elsewhere), &[&elsewhere], CLUSTER));
    fake.client().build().unwrap().timestamp().await.unwrap();
}

/// Nodes that name one another, or themselves: the client waits between its attempts.
#[tokio::test]
async fn nodes_that_name_one_another_are_not_asked_without_a_pause() {
    let issuer = Issuer::new();
    let (one, other) = (Fake::issuing(&issuer).await, Fake::issuing(&issuer).await);
    for names in [[&other, &one], [&one, &other]] {
        for (node, named) in [&one, &other].into_iter().zip(names) {
            let named = named.address.clone();
            node.answers(move |_| Reply::not_leader(&named));
        }
        let before = one.asked().len() + other.asked().len();
        let client = one.client().endpoint(&other.address).timeout(Duration::from_millis(400));
        let error = client.build().unwrap().timestamp().await.unwrap_err();
        let Error::Deadline { last: Some(cause) } = error else { unreachable!("{error}") };
        assert_eq!(cause.kind, AttemptErrorKind::NotLeader);
        let asked = one.asked().len() + other.asked().len() - before;
        assert!((3..25).contains(&asked), "{asked}");
    }
}

/// The leader says why it has no timestamps. Followers that name it hid that.
#[tokio::test]
async fn the_reason_of_the_leader_is_not_hidden_by_followers() {
    let issuer = Issuer::new();
    let (leader, follower) = (Fake::issuing(&issuer).await, Fake::issuing(&issuer).await);
    leader.answers(|_| Reply::new(500, "the clock of this node shows the year 2000"));
    let named = leader.address.clone();
    follower.answers(move |_| Reply::not_leader(&named));
    for attempts_ms in [300, 400] {
        let client = leader.client().endpoint(&follower.address);
        let client = client.timeout(Duration::from_millis(attempts_ms)).build().unwrap();
        let error = client.timestamp().await.unwrap_err();
        let Error::Deadline { last: Some(cause) } = error else { unreachable!("{error}") };
        assert_eq!(cause.address, leader.address);
        assert!(matches!(cause.kind, AttemptErrorKind::Status(500, _)), "{cause}");
        assert!(!follower.asked().is_empty(), "a follower was asked, too");
    }
}

/// The leader is killed, and for a while no node leads. The client knows the other nodes from the
/// list only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_is_waited_for() {
    let issuer = Issuer::new();
    let (leader, next) = (Fake::issuing(&issuer).await, Fake::issuing(&issuer).await);
    leader.members(members(Some(&leader.address), &[&leader.address, &next.address], CLUSTER));
    let killed = leader.address.clone();
    next.answers(move |_| Reply::not_leader(&killed));
    let client = leader.client().timeout(Duration::from_secs(5)).build().unwrap();
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut last = client.timestamp().await.unwrap();
                for _ in 0..100 {
                    let issued = client.timestamp().await.unwrap();
                    assert!(issued > last, "{issued} {last}");
                    last = issued;
                    tokio::time::sleep(Duration::from_millis(4)).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    leader.kill().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    next.answers(|_| Reply::new(500, "no node leads"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    next.answers(move |count| Reply::range(issuer.take(count)));
    for caller in callers {
        caller.await.unwrap();
    }
    let stats = client.stats();
    assert_eq!((stats.failures, stats.leader_changes), (0, 1), "{stats:?}");
    assert!(stats.retries > 2, "{stats:?}");
}

/// A node closes connections that are idle. That is no failure, and the leader is still the leader.
#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_made_again() {
    let issuer = Issuer::new();
    let (leader, other) = (Fake::issuing(&issuer).await, Fake::issuing(&issuer).await);
    leader.members(members(Some(&leader.address), &[&leader.address, &other.address], CLUSTER));
    let client = leader.client().build().unwrap();
    for _ in 0..3 {
        client.timestamp().await.unwrap();
        leader.cut();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((leader.connections(), other.connections(), client.stats().retries), (3, 0, 0));
}
