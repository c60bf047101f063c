//! Proofs of leadership that ask the voters.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_raft::{NodeError, Prover};

use crate::group::{Group, SHORT_WAIT, SLOW_ROUND_TRIP, TEST_TIMEOUT, command};

/// Proves within a time in which a quorum that is there answers.
async fn proven(prover: &mut Prover) -> Result<u64, NodeError> {
    let proof = tokio::time::timeout(SHORT_WAIT, prover.prove()).await;
    proof.unwrap_or(Err(NodeError::TimedOut))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_leader_with_a_quorum_proves_that_it_leads() {
    let mut group = Group::with_three_nodes().await;
    group.write(3).await;
    let old = group.leader().await;
    let other = (1..=3).find(|id| *id != old).unwrap();
    let term = group.nodes[&old].status().term;
    let mut prover = group.prover(old);
    assert_eq!(proven(&mut prover).await, Ok(term));
    let refused = proven(&mut group.prover(other)).await;
    let leader = Some((old, group.member(old)));
    assert_eq!(refused, Err(NodeError::NotLeader { leader }));
    // One of two followers is a quorum.
    group.cut_off(other);
    assert_eq!(proven(&mut prover).await, Ok(term));
    group.connect();
    group.cut_off(old);
    for _ in 0..3 {
        let refused = proven(&mut prover).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    while group.leader().await == old {}
    group.connect();
    group.check().await;
}

/// The leader does not know of the later term, and its voters answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_in_a_later_term_denies_a_proof() {
    let mut group = Group::with_three_nodes().await;
    group.write(3).await;
    let old = group.leader().await;
    let mut prover = group.prover(old);
    group.cut_off_but_for_proofs(old);
    let status = group.nodes[&old].status();
    assert_eq!(proven(&mut prover).await, Ok(status.term));
    let elected = async { while group.leader().await == old {} };
    tokio::time::timeout(TEST_TIMEOUT, elected).await.unwrap();
    assert!(group.nodes[&old].leads());
    assert_eq!(proven(&mut prover).await, Err(NodeError::NoQuorum));
    group.connect();
    group.check().await;
}

/// A single voter is enough, also while the other answers nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_in_a_later_term_ends_a_proof_at_once() {
    let mut group = Group::with_three_nodes().await;
    group.write(3).await;
    let old = group.leader().await;
    let mut prover = group.prover(old);
    assert!(proven(&mut prover).await.is_ok());
    group.cut_off_but_for_proofs(old);
    group.cut_proofs(old, old % 3 + 1);
    let elected = async { while group.leader().await == old {} };
    tokio::time::timeout(TEST_TIMEOUT, elected).await.unwrap();
    assert_eq!(proven(&mut prover).await, Err(NodeError::NoQuorum));
}

/// A proof that waits for one voter asks another one again that was away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_comes_back_ends_a_proof_that_waits_for_another() {
    let mut group = Group::with_three_nodes().await;
    group.write(3).await;
    let leader = group.leader().await;
    let (silent, away) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let mut prover = group.prover(leader);
    assert!(proven(&mut prover).await.is_ok());
    group.cut_proofs(leader, silent);
    group.cut_power(away);
    let proof =
        tokio::spawn(async move { tokio::time::timeout(TEST_TIMEOUT, prover.prove()).await });
    tokio::time::sleep(SHORT_WAIT / 2).await;
    assert!(!proof.is_finished());
    group.start(away).await;
    let proof = proof.await.unwrap();
    assert!(matches!(proof, Ok(Ok(_))), "{proof:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_ends_when_its_node_does_not_lead_any_more() {
    let group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    let leader = group.leader().await;
    for other in 1..=3 {
        group.cut_proofs(leader, other);
    }
    let mut prover = group.prover(leader);
    let proof =
        tokio::spawn(async move { tokio::time::timeout(TEST_TIMEOUT, prover.prove()).await });
    tokio::time::sleep(SHORT_WAIT / 4).await;
    assert!(!proof.is_finished());
    group.nodes[&leader].transfer(leader % 3 + 1, TEST_TIMEOUT).await.unwrap();
    let proof = proof.await.unwrap();
    assert!(matches!(proof, Ok(Err(NodeError::NotLeader { .. }))), "{proof:?}");
}

/// The voters that count are those of the cluster as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_follows_the_members() {
    let mut group = Group::new_at(SLOW_ROUND_TRIP);
    group.start(1).await;
    let member = group.member(1);
    group.nodes[&1].bootstrap(member).await.unwrap();
    group.leader().await;
    let mut prover = group.prover(1);
    assert!(proven(&mut prover).await.is_ok());
    for id in [2, 3] {
        group.start(id).await;
        group.nodes[&1].add(id, group.member(id), TEST_TIMEOUT).await.unwrap();
        assert!(proven(&mut prover).await.is_ok());
    }
    group.cut_off(1);
    assert!(proven(&mut prover).await.is_err());
    group.connect();
    group.leader().await;
}

/// Nothing is served after a transfer has begun, also when the target never leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_gives_leadership_away_proves_nothing() {
    let mut group = Group::with_three_nodes().await;
    group.write(3).await;
    let deadline = Instant::now() + TEST_TIMEOUT;
    let (leader, away, mut prover) = loop {
        let leader = group.leader().await;
        let away = (1..=3).find(|id| *id != leader).unwrap();
        let mut prover = group.prover(leader);
        // It answers, and has not the last entry.
        group.hold_long_entries(away);
        let long = command("long".repeat(1000));
        let node = Arc::clone(&group.nodes[&leader]);
        let term = node.status().term;
        let proposed = node.propose(long, TEST_TIMEOUT).await;
        let giving = Arc::clone(&node);
        let transfer = tokio::spawn(async move { giving.transfer(away, SHORT_WAIT).await });
        tokio::time::sleep(SHORT_WAIT / 4).await;
        let proof = proven(&mut prover).await;
        let transferred = transfer.await.unwrap();
        if node.status().term == term {
            proposed.unwrap();
            assert_eq!(proof, Err(NodeError::LeadershipTransfer));
            assert!(matches!(transferred, Err(NodeError::NotProposed(_))), "{transferred:?}");
            break (leader, away, prover);
        }
        // An election came between: this node was too slow for the others.
        assert!(Instant::now() < deadline);
        group.connect();
    };
    assert!(proven(&mut prover).await.is_ok());
    group.connect();
    group.check().await;
    let to = group.nodes[&leader].transfer(away, TEST_TIMEOUT).await;
    to.unwrap();
    let refused = proven(&mut prover).await;
    let is_refused = matches!(refused, Err(NodeError::NotLeader { .. }));
    assert!(is_refused, "{refused:?}");
    group.write(1).await;
}

/// The target may be elected at any time: the votes of a transfer wait for no lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_target_was_asked_to_lead_proves_nothing() {
    let mut group = Group::with_three_nodes().await;
    group.check().await;
    let leader = group.leader().await;
    let (target, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let node = Arc::clone(&group.nodes[&leader]);
    let term = node.status().term;
    let mut prover = group.prover(leader);
    assert_eq!(proven(&mut prover).await, Ok(term));
    // Nothing shows that the target campaigns, and the other node confirms each proof.
    group.cut_requests(target);
    group.cut_requests(other);
    group.cut_proofs(leader, target);
    let transferring = Arc::clone(&node);
    let transfer = tokio::spawn(async move { transferring.transfer(target, TEST_TIMEOUT).await });
    let campaigns = group.nodes[&target].wait_for(TEST_TIMEOUT, |status| status.term > term).await;
    assert!(campaigns.is_some());
    // The caller gives up.
    transfer.abort();
    assert!(transfer.await.unwrap_err().is_cancelled());
    assert_eq!(node.leased_term(), None);
    let refused = proven(&mut prover).await;
    let is_refused =
        matches!(refused, Err(NodeError::LeadershipTransfer | NodeError::NotLeader { .. }));
    assert!(is_refused, "{refused:?}");
    group.connect();
    group.check().await;
}

/// A voter that stops for a while holds no proof up, and is asked again when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_restarts_is_asked_again() {
    let mut group = Group::with_three_nodes().await;
    group.write(1).await;
    let leader = group.leader().await;
    let mut prover = group.prover(leader);
    let others: Vec<_> = (1..=3).filter(|id| *id != leader).collect();
    for _ in 0..2 {
        for id in &others {
            group.cut_power(*id);
            let proof = proven(&mut prover).await;
            assert!(proof.is_ok(), "{proof:?}");
            group.start(*id).await;
            // The other one cannot be asked.
            let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
            group.check().await;
            while proven(&mut prover).await.is_err() {
                assert!(tokio::time::Instant::now() < deadline);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    group.check().await;
}
