//! Callers that are no members of the cluster, though they know its id.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_disk::sim::SimDisk;
use esker_raft::openraft::entry::EntryPayload;
use esker_raft::openraft::network::RaftNetworkV2;
use esker_raft::openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};
use esker_raft::openraft::{Entry, Membership};
use esker_raft::{
    Commands, Connection, Member, NodeError, PeerSecurity, Replica, SecuredConnection, Status,
};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::group::{
    CLUSTER, Group, ROUND_TRIP, SHORT_WAIT, SLOW_ROUND_TRIP, TEST_TIMEOUT, Words, command,
    start_on, start_secured,
};
use crate::wire::{handshake, id, leading, link, option, vote};

/// A number that no node of a test has.
const STRANGER_NODE: u64 = 30;

/// Connections with a whole handshake that send nothing more, in the name of this number.
async fn silent(count: usize, from: u64, to: u64, address: &str) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&handshake(1, from, to)).await.unwrap();
        // Refused, or welcome.
        let mut answer = [0; 48];
        drop(tokio::time::timeout(TEST_TIMEOUT, stream.read_exact(&mut answer)).await.unwrap());
        connections.push(stream);
    }
    connections
}

/// Votes and entries of a number that never was a member were taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_never_was_a_member_is_refused() {
    let (node, address) = leading(&SimDisk::new(1)).await;
    let term = node.status().term;
    for (caller, is_member) in [(STRANGER_NODE, false), (2, true)] {
        // A leader that is no member stops a node that leads alone, if it leads in a later term.
        let leads_in = if is_member { term + 6 } else { term - 1 };
        // A refused call ends its connection.
        let connect = || link(CLUSTER, caller, 1, address);
        let asked =
            VoteRequest::<Commands>::new(vote(term, caller, false), Some(id(term, 1 << 30)));
        let voted =
            RaftNetworkV2::<Commands>::pre_vote(&mut connect().await, asked, option()).await;
        assert_eq!(voted.is_ok(), is_member, "{voted:?}");
        let asked =
            VoteRequest::<Commands>::new(vote(term + 5, caller, false), Some(id(term, 1 << 30)));
        let mut transferred = asked.clone();
        transferred.leadership_transfer = true;
        for asked in [asked, transferred] {
            let voted =
                RaftNetworkV2::<Commands>::vote(&mut connect().await, asked, option()).await;
            assert_eq!(voted.is_ok(), is_member, "{voted:?}");
            if !is_member {
                assert!(voted.unwrap_err().to_string().contains("no member"));
            }
        }
        let heartbeat = AppendEntriesRequest::<Commands> {
            vote: vote(leads_in, caller, true),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        };
        let appended =
            RaftNetworkV2::<Commands>::append_entries(&mut connect().await, heartbeat, option())
                .await;
        assert_eq!(appended.is_ok(), is_member, "{appended:?}");
        let rises = |status: &Status| status.term > term;
        let patience = if is_member { TEST_TIMEOUT } else { SHORT_WAIT };
        assert_eq!(node.wait_for(patience, rises).await.is_some(), is_member, "{node:?}");
    }
}

/// Proves that each caller is node 2, and encrypts nothing.
#[derive(Debug)]
struct CallersAreNodeTwo;

impl PeerSecurity for CallersAreNodeTwo {
    fn connect(&self, stream: TcpStream, _: u64) -> BoxFuture<'static, io::Result<Connection>> {
        Box::pin(async { Ok(Box::new(stream) as Connection) })
    }

    fn accept(&self, stream: TcpStream) -> BoxFuture<'static, io::Result<SecuredConnection>> {
        Box::pin(async { Ok(SecuredConnection { stream: Box::new(stream), node: Some(2) }) })
    }

    fn allows_plain(&self) -> bool {
        false
    }
}

/// A node with a certificate of its own could act as any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caller_is_the_node_that_it_proves_to_be() {
    let words = Replica::new(Words::default());
    let security = Some(Arc::new(CallersAreNodeTwo) as _);
    let (_node, address) = start_secured(&SimDisk::new(1), 1, ROUND_TRIP, &words, security);
    for (from, is_answered) in [(2, true), (3, false)] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&handshake(1, from, 1)).await.unwrap();
        let mut answer = Vec::new();
        let mut answer_only = (&mut stream).take(48);
        let read = answer_only.read_to_end(&mut answer);
        drop(tokio::time::timeout(TEST_TIMEOUT, read).await.unwrap());
        assert_eq!(answer.len(), if is_answered { 48 } else { 0 }, "node {from}");
    }
}

/// Sixty-four idle connections at each node and one transfer stopped the cluster for a minute: the
/// new leader got no connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_strangers_and_a_transfer_do_not_stop_a_cluster() {
    let mut group = Group::with_three_nodes().await;
    let leader = group.leader().await;
    let next = leader % 3 + 1;
    let mut strangers = Vec::new();
    for to in 1..=3 {
        // Also in the name of the node that leads next.
        for from in [STRANGER_NODE, next] {
            strangers.extend(silent(64, from, to, &group.member(to).raft).await);
        }
    }
    let begun = Instant::now();
    let transferred = group.nodes[&leader].transfer(next, TEST_TIMEOUT).await;
    // On a busy machine there may be another election.
    assert!(transferred.is_ok() || group.leader().await != leader, "{transferred:?}");
    group.write(5).await;
    assert!(begun.elapsed() < TEST_TIMEOUT, "{:?}", begun.elapsed());
    drop(strangers);
    group.check().await;
}

/// A node that joins does not know yet who the members are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_among_idle_strangers() {
    let mut group = Group::with_three_nodes().await;
    group.start(4).await;
    let mut strangers = silent(64, STRANGER_NODE, 4, &group.member(4).raft).await;
    group.add(4).await;
    group.check().await;
    // Those that have a connection lose it soon.
    for stranger in &mut strangers {
        let ended = tokio::time::timeout(TEST_TIMEOUT, stranger.read(&mut [0])).await;
        assert_eq!(ended.unwrap().unwrap_or(0), 0);
    }
}

/// A leader that was added, and elected, while a node was away is unknown to that node. It is heard
/// after ten leases without another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_hears_a_leader_that_it_does_not_know() {
    let mut group = Group::with_three_nodes().await;
    let away = group.leader().await % 3 + 1;
    group.cut_off(away);
    group.start(4).await;
    group.add(4).await;
    group.connect();
    for other in (1..=3).filter(|other| *other != away) {
        group.part(other, away);
    }
    // Only the new node reaches it, and leads, maybe after another election.
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !group.nodes[&away].status().members.contains_key(&4) {
        assert!(Instant::now() < deadline, "{:?}", group.nodes);
        let leader = group.leader().await;
        if leader != 4 {
            drop(group.nodes[&leader].transfer(4, TEST_TIMEOUT).await);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    group.connect();
    group.check().await;
}

/// A folder that was renumbered, or a stranger, has the id of the cluster and no member's number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_never_added_disturbs_no_cluster() {
    let mut group = Group::with_three_nodes_at(SLOW_ROUND_TRIP).await;
    group.write(3).await;
    let terms: Vec<_> = group.nodes.values().map(|node| node.status().term).collect();
    let members: Vec<_> = (1..=3).map(|to| group.member(to).raft).collect();
    for (to, address) in (1..).zip(members) {
        let mut link = link(CLUSTER, STRANGER_NODE, to, address.parse().unwrap()).await;
        let asked =
            VoteRequest::<Commands>::new(vote(90, STRANGER_NODE, false), Some(id(80, 1 << 30)));
        let voted = RaftNetworkV2::<Commands>::vote(&mut link, asked, option()).await;
        assert!(voted.is_err(), "{voted:?}");
    }
    group.check().await;
    let now = group.nodes.values().map(|node| node.status().term);
    assert!(now.zip(terms).all(|(now, term)| now >= term && now < 90));
}

/// A node that joins takes the first leader that calls, and follows it while its log is still at
/// members of before: the leader's own entry comes later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joining_node_follows_a_leader_that_its_log_does_not_name_yet() {
    let (node, address) = start_on(&SimDisk::new(9), 9, Duration::from_millis(250));
    let members = Membership::new(
        vec![BTreeSet::from([1])],
        BTreeMap::from([(1, Member { raft: address.to_string(), ..Member::default() })]),
    );
    let append = |from, term, previous, entries| AppendEntriesRequest::<Commands> {
        vote: vote(term, from, true),
        prev_log_id: previous,
        entries,
        leader_commit: None,
    };
    let payload = EntryPayload::Membership(members.unwrap());
    let first = append(3, 7, None, vec![Entry { log_id: id(1, 0), payload }]);
    let mut leader = link(CLUSTER, 3, 9, address).await;
    let appended = RaftNetworkV2::<Commands>::append_entries(&mut leader, first, option()).await;
    assert!(appended.is_ok(), "{appended:?}");
    assert!(node.wait_for(TEST_TIMEOUT, |status| status.members.contains_key(&1)).await.is_some());
    for (caller, is_taken) in [(STRANGER_NODE, false), (3, true), (1, true)] {
        let mut link = link(CLUSTER, caller, 9, address).await;
        let next = append(caller, 8 + caller % 3, Some(id(1, 0)), Vec::new());
        let appended = RaftNetworkV2::<Commands>::append_entries(&mut link, next, option()).await;
        assert_eq!(appended.is_ok(), is_taken, "{caller}: {appended:?}");
    }
    node.stop().unwrap();
}

/// A node that led alone from an old copy of its folder refused the leader of its cluster for good:
/// that was added after the copy was made. What it had acknowledged is lost: it may not follow, and
/// its node is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leads_alone_with_old_data_stops_when_the_leader_calls() {
    let mut group = Group::new();
    group.start(1).await;
    group.nodes[&1].bootstrap(group.member(1)).await.unwrap();
    group.write(3).await;
    let copy = group.copy_disk(1);
    for id in [2, 3] {
        group.start(id).await;
        group.add(id).await;
    }
    group.start_with_copy(1, copy).await;
    // It leads again after each start, in terms that rise above that of the leader.
    for _ in 0..4 {
        let stopped = tokio::time::timeout(TEST_TIMEOUT, group.nodes[&1].stopped()).await.unwrap();
        let NodeError::OtherData(why) = &stopped else { panic!("{stopped}") };
        assert!(why.contains("earlier time") && why.contains("new number"), "{why}");
        let members = group.nodes[&1].status().members;
        assert_eq!(members.keys().collect::<Vec<_>>(), [&1], "it has taken entries");
        group.cut_power(1);
        group.start(1).await;
    }
    group.cut_power(1);
    group.check().await;
}

/// Each restart of a node that leads alone raises its term, above that of the leader of its
/// cluster. What that has committed shows that the data is old, and a leader from before does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_of_an_earlier_term_that_has_committed_more_stops_one_that_leads_alone() {
    let (node, address) = leading(&SimDisk::new(1)).await;
    node.propose(command("word"), TEST_TIMEOUT).await.unwrap();
    let term = node.status().term;
    for (commit, stops) in [(id(0, 0), false), (id(term - 1, 1 << 30), true)] {
        let mut leader = link(CLUSTER, STRANGER_NODE, 1, address).await;
        let heartbeat = AppendEntriesRequest::<Commands> {
            vote: vote(term - 1, STRANGER_NODE, true),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: Some(commit),
        };
        let refused =
            RaftNetworkV2::<Commands>::append_entries(&mut leader, heartbeat, option()).await;
        assert!(refused.is_err(), "{refused:?}");
        let patience = if stops { TEST_TIMEOUT } else { SHORT_WAIT };
        let stopped = tokio::time::timeout(patience, node.stopped()).await;
        assert_eq!(matches!(stopped, Ok(NodeError::OtherData(_))), stops, "{stopped:?}");
    }
}

/// A leader that was deposed calls as long as it runs. The node that it calls refused all others
/// meanwhile, though it took nothing from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_a_deposed_leader_calls_hears_the_leader_that_it_does_not_know() {
    let (node, address) = start_on(&SimDisk::new(9), 9, ROUND_TRIP);
    let there = || Member { raft: address.to_string(), ..Member::default() };
    let members =
        Membership::new(vec![BTreeSet::from([1, 2])], BTreeMap::from([(1, there()), (2, there())]));
    let append = |from, term, previous, entries| AppendEntriesRequest::<Commands> {
        vote: vote(term, from, true),
        prev_log_id: previous,
        entries,
        leader_commit: None,
    };
    let payload = EntryPayload::Membership(members.unwrap());
    let first = append(1, 7, None, vec![Entry { log_id: id(1, 0), payload }]);
    let mut deposed = link(CLUSTER, 1, 9, address).await;
    let appended = RaftNetworkV2::<Commands>::append_entries(&mut deposed, first, option()).await;
    assert!(appended.is_ok(), "{appended:?}");
    assert!(node.wait_for(TEST_TIMEOUT, |status| status.members.contains_key(&2)).await.is_some());
    let mut candidate = link(CLUSTER, 2, 9, address).await;
    let mut asked = VoteRequest::<Commands>::new(vote(8, 2, false), Some(id(1, 0)));
    asked.leadership_transfer = true;
    let voted = RaftNetworkV2::<Commands>::vote(&mut candidate, asked, option()).await;
    assert!(voted.unwrap().vote_granted);
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let call = append(1, 7, Some(id(1, 0)), Vec::new());
        let refused = RaftNetworkV2::<Commands>::append_entries(&mut deposed, call, option()).await;
        assert!(matches!(refused, Ok(AppendEntriesResponse::HigherVote(_))), "{refused:?}");
        let mut unknown = link(CLUSTER, STRANGER_NODE, 9, address).await;
        let call = append(STRANGER_NODE, 9, Some(id(1, 0)), Vec::new());
        let heard = RaftNetworkV2::<Commands>::append_entries(&mut unknown, call, option()).await;
        if heard.is_ok() {
            break;
        }
        assert!(Instant::now() < deadline, "{heard:?}");
        tokio::time::sleep(ROUND_TRIP).await;
    }
    node.stop().unwrap();
}
