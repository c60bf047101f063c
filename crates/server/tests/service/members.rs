//! Who belongs to a cluster.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_consensus::ConsensusLog;
use esker_server::{FollowerStatus, Members, Server, ServerError, ask};
use http_body_util::Empty;
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::client::{Protocol, get, post, send};
use crate::nodes::{Nodes, TEST_TIMEOUT, own_port};
use crate::tls::token_file;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_works_alone_comes_back() {
    let mut nodes = Nodes::start_all(1).await;
    let (cluster, before) = (nodes.members(1).await.cluster, nodes.timestamp(1).await);
    for _ in 0..3 {
        nodes.stop(1).await;
        nodes.start(1).await.unwrap();
        assert!(nodes.timestamp(1).await > before);
        assert_eq!(nodes.members(1).await.cluster, cluster);
    }
    // Its number is in its data.
    nodes.stop(1).await;
    let mut options = nodes.options(1);
    options.node = None;
    nodes.start_with(1, options.clone()).await.unwrap();
    nodes.timestamp(1).await;
    nodes.stop(1).await;
    options.node = Some(2);
    let refused = Server::start(options).await;
    assert!(matches!(&refused, Err(ServerError::DataMismatch(why)) if why.contains("node 1")));
}

/// No node has the number 0, none joins without one, and a member that lost its data does not come
/// back as itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_has_one_owner() {
    let mut nodes = Nodes::start_all(2).await;
    for (node, join) in [(Some(0), false), (Some(0), true), (None, true)] {
        let mut options = nodes.options(3);
        options.node = node;
        options.join = options.join.filter(|_| join);
        let refused = Server::start(options).await;
        assert!(matches!(refused, Err(ServerError::InvalidOption(_))), "{refused:?}");
    }
    // It lost its data, and with it its votes.
    nodes.stop(2).await;
    std::fs::remove_dir_all(nodes.data(2)).unwrap();
    // The quorum is gone, too, so the leader cannot know.
    let refused = nodes.start(2).await;
    assert!(matches!(refused, Err(ServerError::Join(_))), "{refused:?}");
}

/// Clients of a node that is stopped wait for no election.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_gives_its_leadership_away() {
    let mut nodes = Nodes::start_all(3).await;
    for _ in 0..2 {
        let leader = nodes.leader().await;
        let term = nodes.status(leader % 3 + 1).await.term;
        nodes.stop(leader).await;
        let status = nodes.status(leader % 3 + 1).await;
        let new = status.leader.filter(|new| *new != leader).unwrap();
        // One term more: there was no other election.
        assert_eq!(status.term, term + 1);
        assert_eq!(nodes.status(new).await.role, "leader");
        nodes.start(leader).await.unwrap();
        nodes.wait_for_voters(3).await;
    }
}

/// The others come back while it waits for a client: they need not wait for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_waits_for_its_clients_keeps_no_other_from_leading() {
    let mut nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    let address = nodes.address(leader);
    let stream = TokioIo::new(TcpStream::connect(&address).await.unwrap());
    let mut client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let client = client.initial_stream_window_size(1024).handshake(stream);
    let (mut sender, connection) = client.await.unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{address}/timestamp?n=1000");
    let unread = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
    let _unread = sender.send_request(unread).await.unwrap();
    let others: Vec<_> = (1..=3).filter(|id| *id != leader).collect();
    for other in &others {
        nodes.stop(*other).await;
    }
    let stopping = tokio::spawn(nodes.servers.remove(&leader).unwrap().stop());
    // It finds no quorum.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for other in &others {
        let mut options = nodes.options(*other);
        options.join = None;
        nodes.start_with(*other, options).await.unwrap();
    }
    while nodes.status(others[0]).await.leader.is_none_or(|new| new == leader) {
        assert!(!stopping.is_finished(), "they waited");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stopping.await.unwrap().unwrap();
}

/// Clients and nodes that ask it go to another one at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_waits_for_its_cluster_refuses_connections() {
    let mut nodes = Nodes::none();
    let first = nodes.options(1);
    let mut second = nodes.options(1);
    (second.node, second.data) = (Some(2), nodes.data(2));
    second.join = Some(first.listen.to_string());
    let ports = [second.listen, second.raft_listen];
    let starting = tokio::spawn(Server::start(second));
    for _ in 0..20 {
        for port in ports {
            let refused = TcpStream::connect(port).await.map_err(|error| error.kind());
            assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _member = Server::start(first).await.unwrap();
    let joined = starting.await.unwrap().unwrap();
    for port in ports {
        TcpStream::connect(port).await.unwrap();
    }
    drop(joined);
}

/// A founder whose port for other nodes was on loopback got voters on other hosts, which never
/// reached it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_does_not_join_a_member_that_it_cannot_reach() {
    let mut nodes = Nodes::none();
    let dir = tempfile::tempdir().unwrap();
    // A node that other hosts reach takes changes with a token alone.
    let tokens = token_file(dir.path());
    let mut options = nodes.options(1);
    options.advertise = Some("10.77.0.1:8080".into());
    options.admin_token_file = Some(tokens.clone());
    nodes.start_with(1, options).await.unwrap();
    nodes.timestamp(1).await;
    let apart = |nodes: &mut Nodes| {
        let mut options = nodes.options(2);
        options.advertise = Some("10.77.0.2:8080".into());
        options.raft_advertise = Some("10.77.0.2:8081".into());
        options.admin_token_file = Some(tokens.clone());
        options
    };
    let options = apart(&mut nodes);
    let why = nodes.start_with(2, options).await.unwrap_err().to_string();
    assert!(why.contains("node 1 at 10.77.0.1:8080") && why.contains("--raft-listen"), "{why}");
    assert!(!nodes.data(2).exists());
    assert_eq!(nodes.members(1).await.members.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_does_not_join_itself() {
    let mut nodes = Nodes::none();
    for advertise in [None, Some("node.example:9100")] {
        let mut options = nodes.options(1);
        options.advertise = advertise.map(Into::into);
        let own = advertise.map_or_else(|| options.listen.to_string(), Into::into);
        options.join = Some(own);
        let refused = Server::start(options).await;
        assert!(matches!(refused, Err(ServerError::InvalidOption(_))), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_data_needs_a_new_number() {
    let mut nodes = Nodes::start_all(3).await;
    nodes.stop(3).await;
    std::fs::remove_dir_all(nodes.data(3)).unwrap();
    let refused = nodes.start(3).await;
    assert!(
        matches!(&refused, Err(ServerError::Join(why)) if why.contains("new number")),
        "{refused:?}"
    );
    let leader = nodes.wait_for_voters(3).await;
    let cluster = nodes.members(leader).await.cluster;
    let body = format!(r#"{{"cluster":"{cluster}","nodeID":3}}"#);
    let removed = post(&nodes.address(leader), "/cluster/remove", &body).await;
    assert_eq!(removed.status, 200, "{removed:?}");
    nodes.start(4).await.unwrap();
    nodes.wait_for_voters(3).await;
}

/// A node that was removed does not come back by itself, with --join or without. It starts under
/// other addresses, which it reports to the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_removed_stays_away() {
    let mut nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    let gone = leader % 3 + 1;
    let cluster = nodes.members(leader).await.cluster;
    nodes.stop(gone).await;
    let body = format!(r#"{{"cluster":"{cluster}","nodeID":{gone}}}"#);
    let removed = post(&nodes.address(leader), "/cluster/remove", &body).await;
    assert_eq!(removed.status, 200, "{removed:?}");
    for join in [false, true] {
        nodes.forget_addresses(gone);
        let mut options = nodes.options(gone);
        options.join = Some(nodes.address(leader)).filter(|_| join);
        nodes.start_with(gone, options).await.unwrap();
        for _ in 0..60 {
            let known = nodes.members(leader).await.members;
            assert!(known.iter().all(|member| member.node != gone), "{known:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // It learns that it was removed, and says so.
        let deadline = Instant::now() + TEST_TIMEOUT;
        while nodes.status(gone).await.role != "removed" {
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let known = nodes.members(gone).await.members;
        assert!(known.iter().all(|member| member.node != gone), "{known:?}");
        let ready = get(Protocol::Http1, &nodes.address(gone), "/ready").await;
        assert!(ready.status == 500 && ready.text().contains("was removed"), "{ready:?}");
        nodes.stop(gone).await;
    }
    assert_eq!(nodes.leader().await, leader);
}

/// Only the first node founds a cluster: a node that joined has the id of another one's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_joined_founds_no_cluster() {
    let mut nodes = Nodes::start_all(2).await;
    nodes.stop(1).await;
    nodes.stop(2).await;
    // Its log is new, and it has its identity, as after a crash before the cluster had it.
    let log = ConsensusLog::open(nodes.data(2).join("raft")).unwrap();
    let label = log.options().label.clone();
    log.close().unwrap();
    std::fs::remove_dir_all(nodes.data(2)).unwrap();
    let log = ConsensusLog::builder(nodes.data(2).join("raft")).label(label.clone()).open();
    log.unwrap().close().unwrap();
    let mut alone = nodes.options(2);
    alone.join = None;
    let server = Server::start(alone).await.unwrap();
    for _ in 0..50 {
        let address = server.address().to_string();
        let status = ask(&address, "/status", None, TEST_TIMEOUT).await.unwrap().text();
        assert!(status.contains(r#""role":"learner""#), "{status}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.stop().await.unwrap();
    // The same of the first node: it founds its cluster then, with the id that it has.
    std::fs::remove_dir_all(nodes.data(1)).unwrap();
    let mut first = label;
    first[24] = 1;
    *first.last_mut().unwrap() = 1;
    let log = ConsensusLog::builder(nodes.data(1).join("raft")).label(first).open();
    log.unwrap().close().unwrap();
    nodes.start(1).await.unwrap();
    nodes.timestamp(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_moved_is_found_again() {
    let mut nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    let moved = leader % 3 + 1;
    nodes.stop(moved).await;
    let before = nodes.address(moved);
    nodes.forget_addresses(moved);
    let mut options = nodes.options(moved);
    // It knows the members from its log.
    options.join = None;
    nodes.start_with(moved, options).await.unwrap();
    let now = nodes.address(moved);
    assert_ne!(before, now);
    let known = |members: Members| {
        members.members.iter().any(|member| member.node == moved && member.addr == now)
    };
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !known(nodes.members(leader).await) || !known(nodes.members(moved).await) {
        assert!(Instant::now() < deadline, "{:?}", nodes.members(moved).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // It takes part: with the third gone, two have to agree.
    nodes.stop(moved % 3 + 1).await;
    let leader = loop {
        let leads = nodes.members(moved).await.leader.map(|leader| leader.node);
        if let Some(leader) = leads.filter(|leader| nodes.servers.contains_key(leader)) {
            break leader;
        }
        assert!(Instant::now() < deadline, "no leader");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    nodes.timestamp(leader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_for_its_cluster_and_not_from_a_page() {
    let nodes = Nodes::start_all(1).await;
    let (address, cluster) = (nodes.address(1), nodes.members(1).await.cluster);
    let body = format!(r#"{{"cluster":"{cluster}","nodeID":1}}"#);
    let other = format!(r#"{{"cluster":"{}","nodeID":1}}"#, "0".repeat(32));
    let cases = [
        ("/cluster/transfer", body.as_str(), 200),
        ("/cluster/transfer", &other, 422),
        ("/cluster/remove", &other, 422),
        // It leads, and is the last.
        ("/cluster/remove", &body, 422),
        ("/cluster/admit", &body, 422),
        ("/cluster/admit", &other, 422),
        ("/cluster/add", r#"{"cluster":"","nodeID":1,"addr":"a:1","raftAddr":"b:1"}"#, 422),
        ("/cluster/transfer", "{", 400),
        ("/cluster/transfer", r#"{"cluster":"x","nodeID":1,"more":1}"#, 400),
        ("/cluster/transfer", r#"{"cluster":"x","nodeID":-1}"#, 400),
    ];
    for (path, body, status) in cases {
        let seen = post(&address, path, body).await;
        assert_eq!(seen.status, status, "{path} {body}: {seen:?}");
    }
    let json = ("content-type", "application/json");
    let path = "/cluster/transfer";
    let page = [json, ("origin", "http://example.com")];
    let refused = send(Protocol::Http1, &address, "POST", path, &page, body.as_bytes()).await;
    assert_eq!(refused.status, 403);
    let form = [("content-type", "text/plain")];
    let refused = send(Protocol::Http1, &address, "POST", path, &form, body.as_bytes()).await;
    assert_eq!(refused.status, 415);
    let long = vec![b' '; (64 << 10) + 1];
    let refused = send(Protocol::Http1, &address, "POST", path, &[json], &long).await;
    assert_eq!(refused.status, 413);
}

/// A leader says which nodes answer it, and each node since when it knows the leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_has_the_age_of_the_leader_and_the_nodes_that_answer_it() {
    let mut nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    let deadline = Instant::now() + 4 * TEST_TIMEOUT;
    for node in 1..=3 {
        loop {
            let status = nodes.status(node).await;
            let leads = status.leader == Some(node);
            let is_past = status.leader_age_ms.is_some_and(|age| age > 1000);
            let answer = |follower: &FollowerStatus| {
                follower.answers && follower.heard_ms.is_some() && follower.matched.is_some()
            };
            let answering = status.followers.iter().filter(|follower| answer(follower)).count();
            if is_past && answering == if leads { 2 } else { 0 } {
                break;
            }
            assert!(Instant::now() < deadline, "{status:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let begun = Instant::now();
    nodes.stop(leader).await;
    loop {
        let new = nodes.leader().await;
        for node in (1..=3).filter(|node| *node != leader) {
            let status = nodes.status(node).await;
            let known_ms = begun.elapsed().as_millis() as u64;
            assert!(status.leader_age_ms.is_none_or(|age| age <= known_ms), "{status:?}");
        }
        let status = nodes.status(new).await;
        let away = |follower: &&FollowerStatus| !follower.answers;
        let away: Vec<_> = status.followers.iter().filter(away).map(|one| one.node).collect();
        if away == [leader] {
            return;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A leader whose followers are gone said that it led, without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_quorum_is_not_named() {
    let mut nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    assert_eq!(nodes.named_leaders(leader).await, [leader; 5]);
    for other in (1..=3).filter(|id| *id != leader) {
        nodes.stop(other).await;
    }
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let named = nodes.named_leaders(leader).await;
        let ready = get(Protocol::Http1, &nodes.address(leader), "/ready").await;
        if named.is_empty() && ready.status == 500 {
            return;
        }
        assert!(Instant::now() < deadline, "{named:?} {ready:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// With a wrong --raft-advertise the second node took the quorum of a young cluster with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_raft_address_is_wrong_gets_no_vote() {
    let mut nodes = Nodes::start_all(1).await;
    let mut options = nodes.options(2);
    options.raft_advertise = Some(own_port().to_string());
    nodes.start_with(2, options.clone()).await.unwrap();
    let deadline = Instant::now() + TEST_TIMEOUT;
    while nodes.members(1).await.members.len() < 2 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The same request that the node made.
    let known = nodes.members(1).await;
    let wrong = &known.members[1];
    let body = serde_json::json!({
        "cluster": known.cluster, "nodeID": 2, "addr": wrong.addr, "raftAddr": wrong.raft,
    });
    let refused = post(&nodes.address(1), "/cluster/add", &body.to_string()).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.text().contains("--raft-advertise"), "{refused:?}");
    assert_eq!(nodes.members(1).await.members.iter().filter(|member| member.voter).count(), 1);
    nodes.timestamp(1).await;
    nodes.stop(2).await;
    options.raft_advertise = None;
    nodes.start_with(2, options).await.unwrap();
    nodes.wait_for_voters(2).await;
}

/// The state of a follower may be old: its refusal would be final.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_refuses_no_change() {
    let nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    let known = nodes.members(leader).await;
    // The address of another member.
    let body = serde_json::json!({
        "cluster": known.cluster, "nodeID": 9, "addr": nodes.address(leader), "raftAddr": "a:1",
    });
    let remove = serde_json::json!({"cluster": known.cluster, "nodeID": 9});
    for (path, body) in [("/cluster/add", body), ("/cluster/remove", remove)] {
        let body = body.to_string();
        let answer = post(&nodes.address(leader % 3 + 1), path, &body).await;
        assert_eq!(answer.status, 409, "{path}: {answer:?}");
        let answer = post(&nodes.address(leader), path, &body).await;
        assert_eq!(answer.status, 422, "{path}: {answer:?}");
    }
}

/// Two of three nodes move, and one of them is elected. The others reach it nowhere else, and it
/// asked them for 15 s whether it may move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_moved_and_leads_changes_its_own_address() {
    let mut nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    let moved: Vec<_> = (1..=3).filter(|id| *id != leader).collect();
    for id in &moved {
        nodes.stop(*id).await;
        nodes.forget_addresses(*id);
    }
    for id in &moved {
        let mut options = nodes.options(*id);
        options.join = Some(nodes.address(leader));
        nodes.start_with(*id, options).await.unwrap();
    }
    let moving = Instant::now();
    nodes.wait_for_voters(3).await;
    assert!(moving.elapsed() < Duration::from_secs(10), "{:?}", moving.elapsed());
}
