//! Nodes that come and go.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_raft::{Command, Member, NodeError, Status};
use esker_testkit::own_address;

use crate::group::{Group, SHORT_WAIT, SLOW_ROUND_TRIP, TEST_TIMEOUT, command};

/// More entries than there are between two snapshots: a node that was away, and a new one, get the
/// snapshot, and what is after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_lack_purged_entries_get_the_snapshot() {
    let mut group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    group.write(5).await;
    let leader = group.leader().await;
    let away = (1..=3).find(|id| *id != leader).unwrap();
    group.cut_off(away);
    let (deadline, mut early) = (Instant::now() + TEST_TIMEOUT, 0);
    let leader = loop {
        let leader = group.leader().await;
        let node = &group.nodes[&leader];
        if node.log().floor().is_some() {
            break leader;
        }
        assert!(Instant::now() < deadline, "nothing is purged: {node:?}");
        let proposals =
            (0..2000).map(|n| node.propose(command(format!("early-{}", early + n)), TEST_TIMEOUT));
        // A quorum may be slower than a lease under this load: then some are missing.
        drop(futures_util::future::join_all(proposals).await);
        early += 2000;
    };
    assert_eq!(group.nodes[&away].log().floor(), None);
    group.connect();
    group.check().await;
    group.start(4).await;
    group.nodes[&leader].add(4, group.member(4), TEST_TIMEOUT).await.unwrap();
    group.check().await;
    for id in [away, 4] {
        let log = group.nodes[&id].log();
        assert!(log.floor().is_some(), "node {id} got all entries, and no snapshot");
        // What it has outlives a power cut.
        group.cut_power(id);
        group.start(id).await;
        group.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_added_and_removed() {
    let mut group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    let leader = group.leader().await;
    let gone = (1..=3).find(|id| *id != leader).unwrap();
    let node = &group.nodes[&leader];
    node.remove(gone, TEST_TIMEOUT).await.unwrap();
    let status = node.status();
    assert!(!status.members.contains_key(&gone) && status.voters.len() == 2, "{status:?}");
    for id in [leader, gone, 9] {
        let refused = node.remove(id, TEST_TIMEOUT).await;
        assert!(matches!(refused, Err(NodeError::Membership(_))), "{id}: {refused:?}");
    }
    let other = (1..=3).find(|id| ![leader, gone].contains(id)).unwrap();
    let refused = group.nodes[&other].add(gone, group.member(gone), SHORT_WAIT).await;
    assert!(matches!(refused, Err(NodeError::NotLeader { .. })), "{refused:?}");
    group.cut_power(gone);
    group.check().await;
    // A number has one owner: it may move, and no other may take it.
    let node = &group.nodes[&leader];
    let taken = Member { store: 99, ..group.member(other) };
    let refused = node.add(other, taken, TEST_TIMEOUT).await;
    assert!(matches!(&refused, Err(NodeError::Membership(why)) if why.contains("another node")));
    let moved = Member { client: "moved".into(), ..group.member(other) };
    node.add(other, moved.clone(), TEST_TIMEOUT).await.unwrap();
    assert_eq!(node.member(other, TEST_TIMEOUT).await, Ok(Some(moved)));
    assert_eq!(node.member(gone, TEST_TIMEOUT).await, Ok(None));
    // Under a new number.
    let refused = node.add(gone, group.member(gone), TEST_TIMEOUT).await;
    assert!(matches!(&refused, Err(NodeError::Membership(why)) if why.contains("was removed")));
    group.start(4).await;
    group.nodes[&leader].add(4, group.member(4), TEST_TIMEOUT).await.unwrap();
    // The next leader knows it, too.
    group.nodes[&leader].transfer(4, TEST_TIMEOUT).await.unwrap();
    let refused = group.nodes[&4].add(gone, group.member(gone), TEST_TIMEOUT).await;
    assert!(matches!(&refused, Err(NodeError::Membership(why)) if why.contains("was removed")));
    assert_eq!(group.nodes[&4].was_removed(gone, TEST_TIMEOUT).await, Ok(true));
    assert_eq!(group.nodes[&4].was_removed(9, TEST_TIMEOUT).await, Ok(false));
    group.check().await;
    assert_eq!(group.nodes[&4].status().members[&4], group.member(4));
}

/// A node that does not answer is neither led to nor counted on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_down_takes_no_quorum_with_it() {
    // A leader that gets no processor for an election timeout is one no more.
    let mut group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    let leader = group.leader().await;
    let (down, up) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    group.cut_power(down);
    let node = &group.nodes[&leader];
    let refused = node.remove(up, TEST_TIMEOUT).await;
    let is_refused =
        matches!(&refused, Err(NodeError::Membership(why)) if why.contains("no quorum"));
    assert!(is_refused, "{refused:?}");
    // Refused, or answered by an election: not after TEST_TIMEOUT.
    let refused = tokio::time::timeout(TEST_TIMEOUT / 2, node.transfer(down, TEST_TIMEOUT)).await;
    assert!(matches!(refused, Ok(Err(_))), "{refused:?}");
    group.write(3).await;
    let leader = group.leader().await;
    let node = &group.nodes[&leader];
    node.remove(down, TEST_TIMEOUT).await.unwrap();
    node.propose(Command(vec![2].into()), SHORT_WAIT).await.unwrap();
    group.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_bounded() {
    let mut group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    let leader = group.leader().await;
    let node = &group.nodes[&leader];
    let longest = Command(vec![b'a'; Command::MAX].into());
    node.propose(longest.clone(), TEST_TIMEOUT).await.unwrap();
    let len = Command::MAX + 1;
    let refused = node.propose(Command(vec![b'a'; len].into()), TEST_TIMEOUT).await;
    assert_eq!(refused, Err(NodeError::TooLong { len }));
    // More than fits in the log's memory at a time.
    let many = (0..100).map(|_| node.propose(longest.clone(), TEST_TIMEOUT));
    for answer in futures_util::future::join_all(many).await {
        answer.unwrap();
    }
    group.check().await;
}

/// An operator must not do this, and some do: the folder of a node is replaced by an older copy of
/// it. The leader says so, and sends what the node lacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_set_back_gets_its_entries_again() {
    let mut group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    // A leader that changes meanwhile cannot know what the node had.
    for _ in 0..20 {
        group.write(2).await;
        let leader = group.leader().await;
        let (set_back, other) = if leader == 3 { (2, 1) } else { (3, 3 - leader) };
        group.check().await;
        let before = group.nodes[&leader].status();
        assert_eq!(before.reverted.get(&set_back), None);
        let copy = group.copy_disk(set_back);
        group.write(5).await;
        group.check().await;
        let had = group.nodes[&leader].status().matched[&set_back].unwrap();
        group.start_with_copy(set_back, copy).await;
        group.check().await;
        let status = group.nodes[&leader].status();
        if status.leads() && status.term == before.term {
            assert_eq!(status.reverted.get(&other), None);
            assert!(status.reverted[&set_back] >= had, "{status:?} {had}");
            // It is as good as another one: with the third away, there is a quorum.
            group.cut_power(other);
            group.write(3).await;
            group.start(other).await;
            group.check().await;
            return;
        }
    }
    panic!("there was an election in each of twenty rounds");
}

/// The leader that began a removal gives its leadership away in the middle of it. The one after it
/// ends the removal, whatever it is asked first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_a_leader_leaves_half_done_is_one() {
    let mut group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    for id in 4..16 {
        group.start(id).await;
        let leader = group.leader().await;
        group.nodes[&leader].add(id, group.member(id), TEST_TIMEOUT).await.unwrap();
        let (node, target) = (Arc::clone(&group.nodes[&leader]), leader % 3 + 1);
        let removing = Arc::clone(&node);
        let removal = tokio::spawn(async move { removing.remove(id, TEST_TIMEOUT).await });
        tokio::time::sleep(Duration::from_micros(id * 700 % 5_000)).await;
        drop(node.transfer(target, TEST_TIMEOUT).await);
        drop(removal.await);
        // A change of another kind comes first.
        if id % 2 == 0 {
            let leader = group.leader().await;
            drop(group.nodes[&leader].add(target, group.member(target), TEST_TIMEOUT).await);
        }
        group.remove(id).await;
        let leader = group.leader().await;
        let status = group.nodes[&leader].status();
        assert!(!status.members.contains_key(&id), "{status:?}");
        group.nodes.remove(&id).unwrap().stop().unwrap();
    }
    group.check().await;
}

/// Each change has two steps, between which another would be refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_at_a_time_take_turns() {
    let mut group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    for id in 4..8 {
        group.start(id).await;
    }
    let leader = group.leader().await;
    let node = &group.nodes[&leader];
    let added = (4..8).map(|id| node.add(id, group.member(id), TEST_TIMEOUT));
    for added in futures_util::future::join_all(added).await {
        added.unwrap();
    }
    assert_eq!(node.status().voters.len(), 7);
    for removed in
        futures_util::future::join_all((4..8).map(|id| node.remove(id, TEST_TIMEOUT))).await
    {
        removed.unwrap();
    }
    assert_eq!(node.status().members.len(), 3);
    (4..8).for_each(|id| group.cut_power(id));
    group.check().await;
}

/// A leader that is cut off between the two steps of a change leaves the first. The next one takes
/// the second: a cluster that needs two majorities survives less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joint_configuration_ends_without_another_change() {
    let (mut group, mut left) = (Group::with_three_nodes().await, 0);
    for id in 4..16 {
        group.start(id).await;
        let first = |status: &Status| status.voters.contains(&id);
        let deadline = Instant::now() + TEST_TIMEOUT;
        let (leader, old, addition) = loop {
            assert!(Instant::now() < deadline, "node {id} is not added");
            let leader = group.leader().await;
            let (old, other) = (Arc::clone(&group.nodes[&leader]), leader % 3 + 1);
            let (adding, member) = (Arc::clone(&old), group.member(id));
            let addition = tokio::spawn(async move { adding.add(id, member, TEST_TIMEOUT).await });
            // On a busy machine the leader may change before, or the node not answer in time.
            let mut is_first = false;
            while !is_first && !addition.is_finished() {
                is_first = group.nodes[&other].wait_for(SHORT_WAIT, first).await.is_some();
            }
            if is_first || group.nodes[&other].wait_for(SHORT_WAIT, first).await.is_some() {
                break (leader, old, addition);
            }
        };
        group.cut_off(leader);
        left += usize::from(old.status().is_joint);
        let (deadline, moment) = (Instant::now() + TEST_TIMEOUT, Duration::from_millis(5));
        let is_uniform = |status: &Status| status.leads() && !status.is_joint;
        let others = |id: &u64| *id != leader;
        while !group
            .nodes
            .keys()
            .filter(|id| others(id))
            .any(|id| is_uniform(&group.nodes[id].status()))
        {
            assert!(Instant::now() < deadline, "{:?}", group.nodes);
            tokio::time::sleep(moment).await;
        }
        group.connect();
        let added = addition.await.unwrap();
        assert!(!matches!(added, Err(NodeError::TimedOut)), "{added:?}");
        group.remove(id).await;
        group.cut_power(id);
    }
    assert!(left > 0, "no change was cut off between its steps");
    group.check().await;
}

/// A node with a wrong Raft address had a vote at once while the log was short. The change to the
/// voters with it was never committed, nothing else was after it, and no remedy helped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_never_answered_gets_no_vote() {
    let mut group = Group::new();
    group.start(1).await;
    group.nodes[&1].bootstrap(group.member(1)).await.unwrap();
    group.leader().await;
    let node = Arc::clone(&group.nodes[&1]);
    for id in [2, 3] {
        group.start(id).await;
        let nowhere = Member { raft: format!("{}:1", own_address()), ..group.member(id) };
        let refused = node.add(id, nowhere.clone(), TEST_TIMEOUT).await;
        let Err(NodeError::Membership(why)) = &refused else { panic!("{refused:?}") };
        assert!(why.contains("gets no vote") && why.contains(&nowhere.raft), "{why}");
        let status = node.status();
        assert!(!status.is_joint && !status.voters.contains(&id), "{status:?}");
        node.propose(command("served"), TEST_TIMEOUT).await.unwrap();
    }
    // Either it is removed, or it gets its right address.
    node.remove(3, TEST_TIMEOUT).await.unwrap();
    group.cut_power(3);
    group.add(2).await;
    node.wait_for(TEST_TIMEOUT, |status| status.voters == [1, 2]).await.unwrap();
    group.check().await;
}

/// Voters may go while a new node catches up: with it there would be no quorum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_takes_no_quorum_with_it() {
    let mut group = Group::with_three_nodes().await;
    for _ in 0..3 {
        let leader = group.leader().await;
        group.nodes[&leader].propose(command("long".repeat(1000)), TEST_TIMEOUT).await.unwrap();
    }
    let leader = group.leader().await;
    group.start(4).await;
    group.hold_long_entries(4);
    let (node, member) = (Arc::clone(&group.nodes[&leader]), group.member(4));
    let adding = Arc::clone(&node);
    let added = tokio::spawn(async move { adding.add(4, member, TEST_TIMEOUT).await });
    let is_known =
        |status: &Status| status.members.contains_key(&4) && status.applied == status.last;
    node.wait_for(TEST_TIMEOUT, is_known).await.unwrap();
    for id in (1..=3).filter(|id| *id != leader) {
        group.cut_off(id);
    }
    tokio::time::sleep(SHORT_WAIT).await;
    assert!(!added.is_finished(), "it has no entries yet");
    group.release_long_entries(4);
    let refused = added.await.unwrap();
    let Err(NodeError::Membership(why)) = &refused else { panic!("{refused:?}") };
    assert!(why.contains("with node 4 there is no quorum"), "{why}");
    group.connect();
    group.check().await;
}

/// A refusal is final: a node that may have missed changes does not refuse one, and the caller asks
/// another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_proven_leader_refuses_a_change() {
    let group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    let leader = group.leader().await;
    let (follower, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let refused = group.nodes[&follower].remove(9, SHORT_WAIT).await;
    assert!(matches!(refused, Err(NodeError::NotLeader { .. })), "{refused:?}");
    group.cut_off(leader);
    // The others elect one of them.
    let deadline = Instant::now() + TEST_TIMEOUT;
    while [follower, other].iter().all(|id| !group.nodes[id].leads()) {
        assert!(Instant::now() < deadline, "no node was elected");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let node = &group.nodes[&leader];
    for id in [leader, 9] {
        let refused = node.remove(id, SHORT_WAIT).await;
        assert!(
            refused.is_err() && !matches!(refused, Err(NodeError::Membership(_))),
            "{refused:?}"
        );
    }
    let refused = node.resign(SHORT_WAIT).await;
    assert!(refused.is_err() && !matches!(refused, Err(NodeError::Membership(_))), "{refused:?}");
}
