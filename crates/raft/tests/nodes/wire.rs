//! Callers that are no nodes of this cluster, and votes that come too early.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_consensus::{Ballot, ConsensusLog, Slot};
use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_raft::openraft::impls::leader_id_std::LeaderId;
use esker_raft::openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use esker_raft::openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse,
};
use esker_raft::openraft::storage::{Snapshot, SnapshotMeta};
use esker_raft::openraft::{LogId, Vote};
use esker_raft::{ClusterId, Commands, Link, Member, Network, Node, NodeError, Prover};
use esker_testkit::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::group::{CLUSTER, TEST_TIMEOUT, command, start_on};

type LeaderVote = Vote<LeaderId<u64, u64>>;

pub fn vote(term: u64, node: u64, committed: bool) -> LeaderVote {
    LeaderVote { leader_id: LeaderId { term, voted_for: node }, committed }
}

/// A caller that says it is node `from`, and calls node `to` at this address.
pub async fn link(cluster: ClusterId, from: u64, to: u64, address: SocketAddr) -> Link {
    let member = Member { raft: address.to_string(), client: String::new(), ..Member::default() };
    RaftNetworkFactory::<Commands>::new_client(&mut Network::new(cluster, from), to, &member).await
}

pub fn option() -> RPCOption {
    RPCOption::new(TEST_TIMEOUT)
}

async fn ask(link: &mut Link, vote: LeaderVote) -> Option<VoteResponse<Commands>> {
    let request = VoteRequest::<Commands>::new(vote, Some(id(1, 1 << 40)));
    RaftNetworkV2::<Commands>::vote(link, request, option()).await.ok()
}

pub fn id(
    term: u64,
    index: u64,
) -> LogId<<LeaderId<u64, u64> as esker_raft::openraft::vote::RaftLeaderId>::Committed> {
    LogId {
        leader_id: esker_raft::openraft::vote::leader_id_std::CommittedLeaderId::new(term),
        index,
    }
}

/// A node that leads a cluster of itself, with a lease of two seconds. Node 2 is a member without a
/// vote, and is not there.
pub async fn leading(disk: &SimDisk) -> (Node, SocketAddr) {
    let (node, address) = start_on(disk, 1, Duration::from_millis(250));
    let member = Member { raft: address.to_string(), client: String::new(), ..Member::default() };
    node.bootstrap(member).await.unwrap();
    node.wait_for(TEST_TIMEOUT, |status| status.leads()).await.unwrap();
    let nowhere = Member { raft: format!("{}:1", address.ip()), ..Member::default() };
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !node.status().members.contains_key(&2) {
        assert!(Instant::now() < deadline, "{node:?}");
        node.add(2, nowhere.clone(), Duration::from_millis(100)).await.unwrap_err();
    }
    (node, address)
}

/// The vote is promised before it is durable, and openraft knows of it after that. It may be the
/// one that elects another leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_gives_a_vote_does_not_count_itself() {
    let disk = SimDisk::new(1);
    let (node, address) = leading(&disk).await;
    let (term, node) = (node.status().term, Arc::new(node));
    let mut prover = Prover::new(Arc::clone(&node));
    assert_eq!((node.leased_term(), prover.prove().await), (Some(term), Ok(term)));
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())));
    let voted = tokio::spawn(async move {
        let mut caller = link(CLUSTER, 2, 1, address).await;
        let mut asked = VoteRequest::new(vote(term + 1, 2, false), Some(id(term, 9)));
        asked.leadership_transfer = true;
        RaftNetworkV2::<Commands>::vote(&mut caller, asked, option()).await
    });
    let promised = async {
        while node.log().promised().unwrap().number < 2 * (term + 1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let promised = tokio::time::timeout(TEST_TIMEOUT, promised).await;
    let (leads, leased, proven) = (node.leads(), node.leased_term(), prover.prove().await);
    gate.open();
    promised.unwrap();
    assert!(leads, "it knew of the later term");
    assert_eq!(leased, None);
    assert!(matches!(proven, Err(NodeError::NotLeader { .. })), "{proven:?}");
    assert!(voted.await.unwrap().unwrap().vote_granted);
}

/// A leader may count on what this node acknowledged before it restarted, for one lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_vote_is_given_within_a_lease_of_a_restart() {
    let disk = SimDisk::new(1);
    let (node, address) = start_on(&disk, 1, Duration::from_millis(250));
    // A new node has acknowledged nothing.
    let mut caller = link(CLUSTER, 2, 1, address).await;
    assert!(ask(&mut caller, vote(3, 2, false)).await.unwrap().vote_granted);
    node.stop().unwrap();
    let begun = std::time::Instant::now();
    let (_node, address) = start_on(&disk, 1, Duration::from_millis(250));
    let mut caller = link(CLUSTER, 2, 1, address).await;
    let request = || VoteRequest::<Commands>::new(vote(4, 2, false), Some(id(3, 9)));
    let asked = RaftNetworkV2::<Commands>::pre_vote(&mut caller, request(), option()).await;
    assert!(asked.is_err(), "{asked:?}");
    assert_eq!(ask(&mut caller, vote(4, 2, false)).await, None);
    // The leader itself asked for this one.
    let asked = VoteRequest { leadership_transfer: true, ..request() };
    let voted = RaftNetworkV2::<Commands>::vote(&mut caller, asked, option()).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "this machine is too slow for the test");
    assert!(voted.vote_granted, "{voted}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = RaftNetworkV2::<Commands>::pre_vote(&mut caller, request(), option()).await;
    assert!(asked.is_ok(), "{asked:?}");
    assert!(ask(&mut caller, vote(5, 2, false)).await.unwrap().vote_granted);
}

/// The lease is stored before the node answers anything that a leader may count on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_lease_is_stored_before_a_node_answers() {
    let disk = SimDisk::new(1);
    let (node, address) = start_on(&disk, 1, Duration::from_millis(1));
    let mut caller = link(CLUSTER, 2, 1, address).await;
    assert!(ask(&mut caller, vote(3, 2, false)).await.unwrap().vote_granted);
    node.stop().unwrap();
    let (node, address) = start_on(&disk, 1, Duration::from_millis(250));
    let mut caller = link(CLUSTER, 2, 1, address).await;
    assert_eq!(ask(&mut caller, vote(4, 2, false)).await, None);
    assert_eq!(node.log().app_state().get()[1..5], 2000_u32.to_le_bytes());
}

/// A shorter promise is stored once the longer one has ended, and not when the node starts: the
/// next restart must know of the longer one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_quick_restarts_keep_the_longer_lease() {
    let disk = SimDisk::new(1);
    let (node, address) = start_on(&disk, 1, Duration::from_millis(250));
    let mut caller = link(CLUSTER, 2, 1, address).await;
    assert!(ask(&mut caller, vote(3, 2, false)).await.unwrap().vote_granted);
    node.stop().unwrap();
    let begun = Instant::now();
    let (node, address) = start_on(&disk, 1, Duration::from_millis(10));
    let mut caller = link(CLUSTER, 2, 1, address).await;
    assert_eq!(ask(&mut caller, vote(4, 2, false)).await, None);
    tokio::time::sleep(Duration::from_millis(100)).await;
    node.stop().unwrap();
    let (node, address) = start_on(&disk, 1, Duration::from_millis(10));
    // The shorter lease has ended.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut caller = link(CLUSTER, 2, 1, address).await;
    let answer = ask(&mut caller, vote(4, 2, false)).await;
    assert!(answer.is_none() || begun.elapsed() > Duration::from_secs(2), "{answer:?}");
    node.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_campaigns_within_a_lease_of_its_restart() {
    let disk = SimDisk::new(1);
    let (node, _) = leading(&disk).await;
    node.stop().unwrap();
    let begun = std::time::Instant::now();
    let (node, _) = start_on(&disk, 1, Duration::from_millis(250));
    node.wait_for(TEST_TIMEOUT, |status| status.leads()).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_and_another_node_are_refused() {
    let (node, address) = leading(&SimDisk::new(1)).await;
    let term = node.status().term;
    let candidate = vote(term + 5, 2, false);
    for (cluster, from, to) in [(ClusterId([4; 16]), 2, 1), (CLUSTER, 2, 3), (CLUSTER, 1, 1)] {
        let mut caller = link(cluster, from, to, address).await;
        assert_eq!(ask(&mut caller, candidate).await, None, "{cluster} {from} {to}");
    }
    // A vote for another node than the one that calls; one that no candidate has; a term that has
    // no ballot, at which the log would stop the node.
    let mut caller = link(CLUSTER, 2, 1, address).await;
    for wrong in [vote(term + 5, 3, false), vote(term + 5, 2, true), vote(1 << 63, 2, false)] {
        assert_eq!(ask(&mut caller, wrong).await, None, "{wrong}");
    }
    assert_eq!(node.status().term, term);
    assert_eq!(node.propose(command("word"), TEST_TIMEOUT).await.unwrap(), "1");
    assert!(ask(&mut caller, candidate).await.is_some());
}

/// Connections that send nothing take no places of nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_keep_no_node_away() {
    let (node, address) = leading(&SimDisk::new(1)).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut caller = link(CLUSTER, 2, 1, address).await;
    let request = VoteRequest::<Commands>::new(vote(node.status().term, 2, false), None);
    let asked = RaftNetworkV2::<Commands>::pre_vote(&mut caller, request, option()).await;
    assert!(asked.is_ok(), "{asked:?}");
}

/// Properties of requests that openraft takes for granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_no_leader_sends_are_refused() {
    use esker_raft::openraft::Entry;
    use esker_raft::openraft::entry::EntryPayload;
    let (node, address) = start_on(&SimDisk::new(1), 1, Duration::from_millis(250));
    let mut caller = link(CLUSTER, 2, 1, address).await;
    let entry = |term, index| Entry { log_id: id(term, index), payload: EntryPayload::Blank };
    let append = |vote, previous, entries| AppendEntriesRequest::<Commands> {
        vote,
        prev_log_id: previous,
        entries,
        leader_commit: None,
    };
    let leader = vote(3, 2, true);
    let wrong = [
        // Terms that fall, or that are above that of the vote.
        append(leader, None, vec![entry(2, 0), entry(1, 1)]),
        append(leader, Some(id(2, 0)), vec![entry(1, 1)]),
        append(leader, None, vec![entry(4, 0)]),
        // A vote that no quorum gave, and one of another node.
        append(vote(3, 2, false), None, vec![entry(1, 0)]),
        append(vote(3, 4, true), None, vec![entry(1, 0)]),
        // Indexes to which openraft could not add.
        append(leader, Some(id(1, u64::MAX)), vec![entry(1, 0)]),
        append(leader, Some(id(1, u64::MAX - 1)), vec![]),
        AppendEntriesRequest {
            leader_commit: Some(id(1, u64::MAX)),
            ..append(leader, None, vec![])
        },
    ];
    for request in wrong {
        let text = format!("{request:?}");
        let answer =
            RaftNetworkV2::<Commands>::append_entries(&mut caller, request, option()).await;
        // Refused, and not by the end of the connection in a panic.
        let refused = answer.unwrap_err().to_string();
        assert!(!refused.contains("connection ended"), "{text}: {refused}");
    }
    assert_eq!((node.status().last, node.status().failure), (None, None));
    let request = append(leader, None, vec![entry(1, 0), entry(3, 1)]);
    let answer = RaftNetworkV2::<Commands>::append_entries(&mut caller, request, option()).await;
    assert_eq!(answer.unwrap(), AppendEntriesResponse::Success);
    assert_eq!(node.status().last, Some(1));
}

/// Requests are sent while those before them are not answered, and the answers are in order. After
/// a conflict there are no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_pipelined() {
    use esker_raft::openraft::Entry;
    use esker_raft::openraft::entry::EntryPayload;
    use futures_util::{StreamExt, stream};
    let (_node, address) = start_on(&SimDisk::new(1), 1, Duration::from_millis(250));
    let mut caller = link(CLUSTER, 2, 1, address).await;
    let request = |index: u64| AppendEntriesRequest::<Commands> {
        vote: vote(1, 2, true),
        prev_log_id: index.checked_sub(1).map(|previous| id(1, previous)),
        entries: vec![Entry { log_id: id(1, index), payload: EntryPayload::Blank }],
        leader_commit: None,
    };
    let requests = (0..200).chain([300, 200]).map(request).collect::<Vec<_>>();
    let sent =
        RaftNetworkV2::<Commands>::stream_append(&mut caller, stream::iter(requests), option());
    let answers: Vec<_> = sent.await.unwrap().map(|answer| answer.unwrap()).collect().await;
    assert_eq!(answers.len(), 201);
    for (index, answer) in (0..200).zip(&answers) {
        assert_eq!(*answer, Ok(Some(id(1, index))));
    }
    assert!(answers[200].is_err(), "{:?}", answers[200]);
}

/// The first bytes of a node that connects to another: for calls (1), or for a snapshot (2).
pub fn handshake(purpose: u8, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = b"ESKRAFT1\x03\0".to_vec();
    bytes.extend([purpose, 0]);
    bytes.extend(CLUSTER.0);
    bytes.extend([from, to].map(u64::to_le_bytes).concat());
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A sender of a snapshot that stalls, before the snapshot or in it, does not keep its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_stalls_is_given_up() {
    let (_node, address) = start_on(&SimDisk::new(1), 1, Duration::from_millis(250));
    // The call for a snapshot under the vote of term 3, as postcard encodes it.
    let call = [&0_u64.to_le_bytes()[..], &[4, 3, 2, 1]].concat();
    let frame = [&16_u32.to_le_bytes()[..], &checksum(&call).to_le_bytes(), &call].concat();
    let stalled = [0, 5, frame.len()].map(|sent| {
        let frame = &frame;
        async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&handshake(2, 2, 1)).await.unwrap();
            stream.write_all(&frame[..sent]).await.unwrap();
            let mut answers = Vec::new();
            let ended = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut answers)).await;
            assert!(ended.is_ok(), "{sent} bytes");
            assert_eq!(answers[10], 3, "it is not welcome: {answers:?}");
            // Only the whole call was answered.
            assert_eq!(answers.len() > 48, sent == frame.len(), "{answers:?}");
        }
    });
    futures_util::future::join_all(stalled).await;
}

/// A leader that sends nothing but a snapshot does not keep a node alive that cannot store it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_for_a_log_that_has_failed_stops_the_node() {
    let disk = SimDisk::new(1);
    let (node, address) = leading(&disk).await;
    // The first may be a write on which the log does not depend.
    disk.inject(Fault::on(Op::Write, Effect::Io));
    // Another write of the log may have failed before.
    if let Ok(stored) = node.log().app_state().set(b"more") {
        stored.await.unwrap_err();
    }
    disk.clear_faults();
    let other = ConsensusLog::builder("/other").disk(Arc::new(disk)).open().unwrap();
    let ballot = Ballot { number: 1, node: 2 };
    other.learn(Slot(0), ballot, b"word").unwrap().await.unwrap();
    other.snapshots().create(Slot(0), &b"words"[..]).unwrap();
    let snapshot = other.snapshots().latest().unwrap();
    let snapshot = Snapshot { meta: SnapshotMeta::default(), snapshot };
    let mut caller = link(CLUSTER, 2, 1, address).await;
    let (leader, never) = (vote(node.status().term + 1, 2, true), std::future::pending());
    let sent =
        RaftNetworkV2::<Commands>::full_snapshot(&mut caller, leader, snapshot, never, option());
    assert!(sent.await.is_err());
    let why = tokio::time::timeout(TEST_TIMEOUT, node.stopped()).await.unwrap();
    assert!(why.to_string().contains("write"), "{why}");
}

/// Garbage, at the beginning and after a handshake, ends that connection and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_its_connection() {
    let (node, address) = leading(&SimDisk::new(1)).await;
    let mut rng = Rng::new(7, 0);
    let handshake = handshake(1, 2, 1);
    for round in 0..40 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if round % 2 == 1 {
            stream.write_all(&handshake).await.unwrap();
            let mut answer = [0; 48];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer[10], 3, "it is not welcome: {answer:?}");
        }
        let garbage: Vec<u8> = (0..rng.below(300)).map(|_| rng.next() as u8).collect();
        stream.write_all(&garbage).await.unwrap();
        if round % 4 < 2 {
            stream.shutdown().await.unwrap();
        }
        drop(stream);
    }
    // A handshake that does not come does not keep its place.
    let mut silent = TcpStream::connect(address).await.unwrap();
    let ended = tokio::time::timeout(TEST_TIMEOUT, silent.read(&mut [0; 1])).await;
    assert_eq!(ended.unwrap().unwrap_or(0), 0);
    assert_eq!(node.propose(command("word"), TEST_TIMEOUT).await.unwrap(), "1");
}
