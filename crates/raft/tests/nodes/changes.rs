//! Changes of the members wait for their caller's whole deadline, and say what is known.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Instant;

use esker_raft::{Member, NodeError, Status};

use crate::group::{Group, SHORT_WAIT, TEST_TIMEOUT};

/// A change that fails because another node was elected, on a busy machine, proves nothing.
fn was_deposed<T>(changed: &Result<T, NodeError>) -> bool {
    matches!(changed, Err(NodeError::NotLeader { .. } | NodeError::Unknown))
}

/// Two nodes that vote, and a third that runs. Returns the leader and the other voter.
async fn two_and_one() -> (Group, u64, u64) {
    let mut group = Group::new();
    group.start(1).await;
    group.nodes[&1].bootstrap(group.member(1)).await.unwrap();
    for id in [2, 3] {
        group.leader().await;
        group.start(id).await;
    }
    group.add(2).await;
    let leader = group.leader().await;
    (group, leader, 3 - leader)
}

/// Under load `add` returned `NoQuorum` after a lease of the five seconds that it was given, and
/// the change had been proposed, and even committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_waits_for_a_quorum_until_its_deadline() {
    let (mut group, leader, other) = two_and_one().await;
    group.cut_off(other);
    let node = Arc::clone(&group.nodes[&leader]);
    // Its lease ends.
    tokio::time::sleep(SHORT_WAIT).await;
    let begun = Instant::now();
    let calls = (
        node.add(3, group.member(3), SHORT_WAIT),
        node.remove(other, SHORT_WAIT),
        node.transfer(other, SHORT_WAIT),
    );
    let (added, removed, transferred) = tokio::join!(calls.0, calls.1, calls.2);
    for refused in [added, removed, transferred] {
        assert!(matches!(refused, Err(NodeError::NotProposed(_))), "{refused:?}");
        assert!(!refused.unwrap_err().may_still_happen());
    }
    assert!(begun.elapsed() > SHORT_WAIT * 3 / 4, "{:?}", begun.elapsed());
    assert_eq!(node.status().members.keys().collect::<Vec<_>>(), [&1, &2]);
    // The quorum is back long before the deadline.
    let (adding, member) = (Arc::clone(&node), group.member(3));
    let added = tokio::spawn(async move { adding.add(3, member, TEST_TIMEOUT).await });
    tokio::time::sleep(SHORT_WAIT).await;
    assert!(!added.is_finished(), "{:?}", added.await);
    group.connect();
    let added = added.await.unwrap();
    assert!(added.is_ok() || was_deposed(&added), "{added:?}");
    group.add(3).await;
    let leader = group.leader().await;
    let status = group.nodes[&leader].status();
    assert!(status.voters == [1, 2, 3] && !status.is_joint, "{status:?}");
    group.check().await;
}

/// An entry that a quorum did not get in time is proposed all the same. The next call does what is
/// left, and another change waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_proposed_may_still_happen_and_is_followed_to_its_end() {
    for _ in 0..20 {
        if is_followed_to_its_end().await {
            return;
        }
    }
    panic!("there was an election in each of twenty rounds");
}

/// Returns whether no election came between.
async fn is_followed_to_its_end() -> bool {
    let (mut group, leader, other) = two_and_one().await;
    let node = Arc::clone(&group.nodes[&leader]);
    // Heartbeats pass: the leader keeps its quorum.
    group.hold_long_entries(other);
    let long = Member { client: "long".repeat(1000), ..group.member(3) };
    let added = node.add(3, long.clone(), SHORT_WAIT).await;
    let removed = node.remove(other, SHORT_WAIT).await;
    if !node.leads() {
        return false;
    }
    assert_eq!(added, Err(NodeError::TimedOut));
    assert!(NodeError::TimedOut.may_still_happen());
    let waits = matches!(&removed, Err(NodeError::NotProposed(why)) if why.contains("another"));
    assert!(waits, "{removed:?}");
    group.release_long_entries(other);
    let is_committed =
        |status: &Status| status.members.contains_key(&3) && status.applied == status.last;
    assert!(node.wait_for(TEST_TIMEOUT, is_committed).await.is_some(), "{node:?}");
    let added = node.add(3, long, TEST_TIMEOUT).await;
    assert!(added.is_ok() || !node.leads(), "{added:?}");
    group.add(3).await;
    group.check().await;
    true
}
