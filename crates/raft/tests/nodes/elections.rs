//! Leadership after restarts, partitions, transfers and lost quorums.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_disk::sim::{Persist, SimDisk};
use esker_raft::{Member, Node, NodeError, Status};

use crate::group::{Group, SHORT_WAIT, SLOW_ROUND_TRIP, TEST_TIMEOUT, command, start_on};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_survives_power_cuts_of_its_leaders_and_of_all() {
    let mut group = Group::with_three_nodes().await;
    group.write(20).await;
    group.check().await;
    for _ in 0..3 {
        let leader = group.leader().await;
        group.cut_power(leader);
        group.write(10).await;
        group.start(leader).await;
        group.check().await;
    }
    for id in 1..=3 {
        group.cut_power(id);
    }
    for id in 1..=3 {
        group.start(id).await;
    }
    group.check().await;
}

/// A leader that restarts has entries that it sent and did not store: it may not lead in its term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_leader_begins_a_new_term() {
    let disk = SimDisk::new(1);
    let (node, address) = start_on(&disk, 1, Duration::from_millis(10));
    let member = Member { raft: address.to_string(), client: String::new(), ..Member::default() };
    assert!(!node.is_initialized().await.unwrap());
    node.bootstrap(member).await.unwrap();
    let mut term = 0;
    let mut node = node;
    for life in 1..4 {
        let leads = node.wait_for(TEST_TIMEOUT, |status| status.leads()).await.unwrap();
        assert!(leads.term > term, "life {life}: {leads:?}");
        term = leads.term;
        let answer = node.propose(command("word"), TEST_TIMEOUT).await.unwrap();
        assert_eq!(answer, life.to_string());
        node.stop().unwrap();
        node = start_on(&disk, 1, Duration::from_millis(10)).0;
        assert!(node.is_initialized().await.unwrap());
    }
}

/// A leader may count on what the node promised before it stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_shorter_lease_waits_for_the_longer_one() {
    let [long, short] = [1000, 8].map(Duration::from_millis);
    let disk = SimDisk::new(1);
    let (node, address) = start_on(&disk, 1, long / 8);
    let member = Member { raft: address.to_string(), client: String::new(), ..Member::default() };
    node.bootstrap(member).await.unwrap();
    node.wait_for(TEST_TIMEOUT, |status| status.leads()).await.unwrap();
    // A power cut: what it promised is on the disk.
    disk.power_cut(Persist::Nothing);
    drop(node.stop());
    disk.power_on();
    let begun = Instant::now();
    let (node, _) = start_on(&disk, 1, short / 8);
    node.wait_for(TEST_TIMEOUT, |status| status.leads()).await.unwrap();
    assert!(begun.elapsed() >= long, "{:?}", begun.elapsed());
    // From then on it promises no more than the shorter one.
    let kept =
        |node: &Node| u32::from_le_bytes(*node.log().app_state().get()[1..].first_chunk().unwrap());
    let deadline = Instant::now() + TEST_TIMEOUT;
    while kept(&node) != 8 {
        assert!(Instant::now() < deadline, "it keeps {} ms", kept(&node));
        tokio::time::sleep(short).await;
    }
    node.stop().unwrap();
    let (node, _) = start_on(&disk, 1, long / 8);
    while kept(&node) != 1000 {
        assert!(Instant::now() < deadline, "it keeps {} ms", kept(&node));
        tokio::time::sleep(short).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_proves_nothing() {
    let mut group = Group::with_three_nodes().await;
    group.write(3).await;
    let old = group.leader().await;
    group.cut_off(old);
    let refused = group.nodes[&old].ensure_linearizable(SHORT_WAIT).await;
    assert!(refused.is_err(), "{refused:?}");
    let refused = group.nodes[&old].propose(command("lost"), SHORT_WAIT).await;
    assert!(refused.is_err(), "{refused:?}");
    // Its lease is over, and it still takes itself for the leader.
    let refused = group.nodes[&old].propose(command("lost"), SHORT_WAIT).await;
    assert_eq!(refused, Err(NodeError::NoQuorum));
    group.write(10).await;
    assert_ne!(group.leader().await, old);
    group.connect();
    group.check().await;
}

/// Half of the voters cannot elect a leader, and the other half would not while one of them hears
/// the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whom_half_of_the_voters_hear_makes_room() {
    let mut group = Group::with_three_nodes().await;
    group.start(4).await;
    group.add(4).await;
    let leader = group.leader().await;
    for parted in (1..=3).filter(|id| *id != leader) {
        group.part(leader, parted);
    }
    let elected = group.nodes[&4].wait_for(TEST_TIMEOUT, |status| {
        status.leader.is_some_and(|now| now != leader) && status.term > 1
    });
    assert!(elected.await.is_some(), "{:?}", group.nodes);
    group.connect();
    group.check().await;
}

/// Also a leader that has nothing to replicate knows which voters are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_goes_round_without_a_named_target() {
    // A leader that gets no processor for an election timeout is one no more.
    let group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    for _ in 0..6 {
        let leader = group.leader().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let follower = leader % 3 + 1;
        let refused = group.nodes[&follower].resign(TEST_TIMEOUT).await;
        let named = Some((leader, group.member(leader)));
        assert_eq!(refused, Err(NodeError::NotLeader { leader: named }));
        let next = group.nodes[&leader].resign(TEST_TIMEOUT).await.unwrap();
        assert_ne!(next, leader);
        assert_ne!(group.leader().await, leader);
    }
}

/// A node that stopped a moment ago is chosen first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_goes_to_a_voter_that_answers() {
    let group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    let leader = group.leader().await;
    let mut others = (1..=3).filter(|id| *id != leader);
    let (first, second) = (others.next().unwrap(), others.next().unwrap());
    // It is known to be there.
    group.nodes[&leader].ensure_linearizable(TEST_TIMEOUT).await.unwrap();
    group.cut_off(first);
    // On a busy machine the other one may not answer in time, either: then it is asked again.
    let deadline = Instant::now() + TEST_TIMEOUT;
    while let Err(error) = group.nodes[&leader].resign(TEST_TIMEOUT).await {
        assert!(matches!(error, NodeError::Membership(_)), "{error}");
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(group.leader().await, second);
}

/// The target is asked to lead, and fails: the node that gave leadership away may be elected again,
/// and serves in its new term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_elected_again_after_a_transfer_serves() {
    let group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    let deadline = Instant::now() + 4 * TEST_TIMEOUT;
    loop {
        let leader = group.leader().await;
        let target = leader % 3 + 1;
        let node = Arc::clone(&group.nodes[&leader]);
        node.transfer(target, TEST_TIMEOUT).await.unwrap();
        group.nodes[&target].transfer(leader, TEST_TIMEOUT).await.unwrap();
        let term = node.status().term;
        // It is connected to the others from the term in which it led, and gets no votes.
        group.cut_answers(target);
        let transferring = Arc::clone(&node);
        let transfer =
            tokio::spawn(async move { transferring.transfer(target, TEST_TIMEOUT).await });
        let elected = |status: &Status| status.term > term && status.leader.is_some();
        let elected = node.wait_for(TEST_TIMEOUT, elected).await.unwrap();
        if elected.leads() {
            let elected = Instant::now();
            while let Err(error) = node.propose(command("again"), TEST_TIMEOUT / 2).await {
                assert!(elected.elapsed() < TEST_TIMEOUT / 3, "{error}");
            }
            let transfer = tokio::time::timeout(TEST_TIMEOUT / 2, transfer).await.unwrap().unwrap();
            assert!(matches!(transfer, Err(NodeError::Membership(_))), "{transfer:?}");
            break;
        }
        assert!(Instant::now() < deadline, "another node was elected each time");
        transfer.await.unwrap().unwrap_err();
        group.connect();
    }
}

/// With pre-vote a node that was cut off deposes no leader: the term stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_was_cut_off_deposes_no_leader() {
    let round_trip = Duration::from_millis(50);
    let mut group = Group::with_three_nodes_at(round_trip).await;
    let leader = group.leader().await;
    let away = (1..=3).find(|id| *id != leader).unwrap();
    let term = group.nodes[&leader].status().term;
    group.cut_off(away);
    // It misses many election timeouts.
    tokio::time::sleep(round_trip * 60).await;
    assert_eq!(group.nodes[&away].status().term, term);
    group.connect();
    group.check().await;
    tokio::time::sleep(round_trip * 16).await;
    assert_eq!(group.leader().await, leader);
    assert_eq!(group.nodes[&leader].status().term, term);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_goes_to_another_node_and_back() {
    let mut group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    group.write(3).await;
    let first = group.leader().await;
    let second = (1..=3).find(|id| *id != first).unwrap();
    for (from, to) in [(first, second), (second, first), (first, second)] {
        let term = group.nodes[&from].status().term;
        group.nodes[&from].transfer(to, TEST_TIMEOUT).await.unwrap();
        assert_eq!(group.leader().await, to);
        assert_eq!(group.nodes[&to].status().term, term + 1);
        let refused = group.nodes[&from].propose(command("late"), SHORT_WAIT).await;
        let leader = Some((to, group.member(to)));
        assert_eq!(refused, Err(NodeError::NotLeader { leader }));
        group.write(5).await;
    }
    group.check().await;
    let leader = group.leader().await;
    for target in [leader, 9] {
        let refused = group.nodes[&leader].transfer(target, TEST_TIMEOUT).await;
        assert!(matches!(refused, Err(NodeError::Membership(_))), "{refused:?}");
    }
    let refused = group.nodes[&first].transfer(leader, TEST_TIMEOUT).await;
    assert!(matches!(refused, Err(NodeError::NotLeader { .. })), "{refused:?}");
}

/// A target that does not answer is not asked, and the leader stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_does_not_go_to_a_node_that_lags() {
    let mut group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    let short = 15 * SLOW_ROUND_TRIP;
    let leader = group.leader().await;
    let away = (1..=3).find(|id| *id != leader).unwrap();
    group.cut_off(away);
    group.write(100).await;
    let term = group.nodes[&leader].status().term;
    // It is not waited for as one that lags, which may take all of the patience.
    let refused =
        tokio::time::timeout(TEST_TIMEOUT / 2, group.nodes[&leader].transfer(away, TEST_TIMEOUT))
            .await;
    let Ok(Err(NodeError::Membership(why))) = &refused else { panic!("{refused:?}") };
    assert!(why.contains("does not answer"), "{why}");
    // Few entries: the leader takes no proposals while it waits for the last of them.
    group.connect();
    group.check().await;
    let knows = |status: &esker_raft::Status| status.matched[&away] == status.last;
    group.nodes[&leader].wait_for(TEST_TIMEOUT, knows).await.unwrap();
    // It answers, and has not the last entries.
    group.hold_long_entries(away);
    for _ in 0..3 {
        let long = command("long".repeat(1000));
        group.nodes[&leader].propose(long, TEST_TIMEOUT).await.unwrap();
    }
    let node = &group.nodes[&leader];
    let (refused, meanwhile) = tokio::join!(node.transfer(away, short), async {
        tokio::time::sleep(short / 4).await;
        (node.ensure_linearizable(short).await, node.propose(command("late"), short).await)
    });
    assert!(matches!(refused, Err(NodeError::NotProposed(_))), "{refused:?}");
    assert_eq!(meanwhile, (Err(NodeError::LeadershipTransfer), Err(NodeError::LeadershipTransfer)));
    group.write(3).await;
    // One whose caller gives up, and two at a time, leave the leader as it was, too.
    let node = &group.nodes[&leader];
    assert!(tokio::time::timeout(short / 4, node.transfer(away, TEST_TIMEOUT)).await.is_err());
    let both = tokio::join!(node.transfer(away, short), node.transfer(away, 2 * short));
    for refused in [both.0, both.1] {
        assert!(refused.is_err_and(|error| !error.may_still_happen()));
    }
    group.write(3).await;
    assert_eq!((group.leader().await, group.nodes[&leader].status().term), (leader, term));
    group.connect();
    group.check().await;
}

/// A target that has every entry and has just gone costs no election: the leader serves on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_does_not_go_to_a_node_that_has_just_gone() {
    let mut group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    group.check().await;
    let leader = group.leader().await;
    let away = (1..=3).find(|id| *id != leader).unwrap();
    let node = &group.nodes[&leader];
    let has_all = |status: &esker_raft::Status| status.matched[&away] == status.last;
    node.wait_for(TEST_TIMEOUT, has_all).await.unwrap();
    let term = node.status().term;
    group.cut_off(away);
    let (refused, proofs) = tokio::join!(node.transfer(away, TEST_TIMEOUT), async {
        let mut proofs = Vec::new();
        for _ in 0..20 {
            proofs.push(node.ensure_linearizable(TEST_TIMEOUT).await);
            tokio::time::sleep(SHORT_WAIT / 20).await;
        }
        proofs
    });
    assert!(
        matches!(&refused, Err(NodeError::Membership(why)) if why.contains("does not answer")),
        "{refused:?}"
    );
    assert!(proofs.iter().all(|proof| *proof == Ok(term)), "{proofs:?}");
    group.connect();
    group.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_goes_on_after_its_quorum_was_gone() {
    let mut group = Group::with_three_nodes().await;
    group.write(3).await;
    let leader = group.leader().await;
    for id in (1..=3).filter(|id| *id != leader) {
        group.cut_off(id);
    }
    let node = &group.nodes[&leader];
    let pending = node.propose(command("pending"), SHORT_WAIT).await;
    assert!(pending.is_err(), "{pending:?}");
    for _ in 0..3 {
        assert_eq!(node.propose(command("lost"), SHORT_WAIT).await, Err(NodeError::NoQuorum));
        assert!(node.ensure_linearizable(SHORT_WAIT).await.is_err());
    }
    group.connect();
    group.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_has_released_its_port_and_its_log() {
    let disk = SimDisk::new(1);
    for _ in 0..5 {
        let (node, address) = start_on(&disk, 1, Duration::from_millis(10));
        node.stop().unwrap();
        std::net::TcpListener::bind(address).unwrap();
    }
}
