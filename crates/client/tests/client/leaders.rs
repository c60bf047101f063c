//! Finding the leader and following it.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use esker_client::AttemptErrorKind;

use crate::fake::{CLUSTER, Fake, Issuer, Reply, last_failure, members, wait_until};

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
        let asked = || one.asked().len() + other.asked().len();
        let (before, begun) = (asked(), Instant::now());
        let client = one.client().endpoint(&other.address).timeout(Duration::from_millis(400));
        let client = client.build().unwrap();
        wait_until(async || {
            client.timestamp().await.unwrap_err();
            asked() >= before + 12
        })
        .await;
        // After three, the waits have 2, 4, 8, 16, 32 and then 50 ms at least.
        assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
        assert_eq!(last_failure(&client).await.kind, AttemptErrorKind::NotLeader);
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
        let asked = [&leader, &follower].map(|node| node.asked().len());
        wait_until(async || {
            client.timestamp().await.unwrap_err();
            // So the client has got the answer to the first request of each.
            leader.asked().len() > asked[0] + 2 && follower.asked().len() > asked[1] + 2
        })
        .await;
        let cause = last_failure(&client).await;
        assert_eq!(cause.address, leader.address);
        assert!(matches!(cause.kind, AttemptErrorKind::Status { status: 500, .. }), "{cause}");
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
    let client = leader.client().build().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let (client, is_over) = (client.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut last = client.timestamp().await.unwrap();
                while !is_over.load(Relaxed) {
                    let issued = client.timestamp().await.unwrap();
                    assert!(issued > last, "{issued} {last}");
                    last = issued;
                    tokio::time::sleep(Duration::from_millis(4)).await;
                }
            })
        })
        .collect();
    leader.wait_for_requests(20).await;
    leader.kill().await;
    next.wait_for_requests(1).await;
    next.answers(|_| Reply::new(500, "no node leads"));
    next.wait_for_requests(next.asked().len() + 2).await;
    next.answers(move |count| Reply::range(issuer.take(count)));
    next.wait_for_requests(next.asked().len() + 20).await;
    is_over.store(true, Relaxed);
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
        // The client reads the end meanwhile.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!((leader.connections(), other.connections(), client.stats().retries), (3, 0, 0));
}
