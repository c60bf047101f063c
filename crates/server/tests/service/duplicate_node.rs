//! Nodes that must not run: copies, repaired logs, data of another cluster.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

use esker_server::{Server, ServerError, ServerOptions};

use crate::nodes::{Nodes, TEST_TIMEOUT, own_port};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A node alone, on ports that the system chooses.
fn alone(data: &Path) -> ServerOptions {
    let mut options = ServerOptions::new(data);
    (options.listen, options.raft_listen) = (own_port(), own_port());
    options
}

async fn refused(server: Server) -> String {
    let failed = tokio::time::timeout(TEST_TIMEOUT, server.failed()).await.unwrap();
    drop(server.stop().await);
    match failed {
        ServerError::DataMismatch(why) => why,
        other => panic!("{other:?}"),
    }
}

/// The copy has the node's votes: with it the node could vote twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_node_that_runs_stops() {
    let nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    for node in [leader, leader % 3 + 1] {
        let dir = tempfile::tempdir().unwrap();
        copy(&nodes.data(node), dir.path());
        let why = refused(Server::start(alone(dir.path())).await.unwrap()).await;
        assert!(why.contains(&format!("as node {node} at {}", nodes.address(node))), "{why}");
        // The one that is a member continues.
        let named = nodes.members(leader).await.members;
        assert!(
            named.iter().any(|one| one.node == node && one.addr == nodes.address(node)),
            "{named:?}"
        );
    }
    nodes.timestamp(nodes.leader().await).await;
}

/// The node has moved, and its old data is started again: its own log does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_copy_of_a_node_that_moved_stops() {
    let mut nodes = Nodes::start_all(3).await;
    let moved = nodes.leader().await % 3 + 1;
    nodes.stop(moved).await;
    let dir = tempfile::tempdir().unwrap();
    copy(&nodes.data(moved), dir.path());
    let mut old = nodes.options(moved);
    old.data = dir.path().to_path_buf();
    nodes.forget_addresses(moved);
    nodes.start(moved).await.unwrap();
    let now = nodes.address(moved);
    loop {
        let leader = nodes.leader().await;
        let named = nodes.members(leader).await.members;
        if named.iter().any(|one| one.node == moved && one.addr == now) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let why = refused(Server::start(old).await.unwrap()).await;
    assert!(why.contains(&format!("as node {moved} at {now}")), "{why}");
    nodes.timestamp(nodes.leader().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_another_cluster_is_not_joined() {
    let nodes = Nodes::start_all(1).await;
    let cluster = nodes.members(1).await.cluster;
    let dir = tempfile::tempdir().unwrap();
    let other = Server::start(alone(dir.path())).await.unwrap();
    other.stop().await.unwrap();
    let mut options = alone(dir.path());
    options.join = Some(nodes.address(1));
    let why = refused(Server::start(options.clone()).await.unwrap()).await;
    assert!(why.contains(&cluster) && why.contains("--join"), "{why}");
    // As it was, and with a member that does not answer.
    options.join = Some("127.0.0.1:1".into());
    let server = Server::start(options).await.unwrap();
    let stays = tokio::time::timeout(TEST_TIMEOUT / 60, server.failed()).await;
    assert!(stays.is_err(), "{stays:?}");
    server.stop().await.unwrap();
}

/// The first node lost its data, and founded a cluster under its old address. The others are not
/// to blame: they go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_founded_another_cluster_stops_no_other() {
    let mut nodes = Nodes::start_all(3).await;
    nodes.stop(1).await;
    fs::remove_dir_all(nodes.data(1)).unwrap();
    nodes.start(1).await.unwrap();
    nodes.stop(2).await;
    nodes.start(2).await.unwrap();
    let stays = tokio::time::timeout(TEST_TIMEOUT / 60, nodes.servers[&2].failed()).await;
    assert!(stays.is_err(), "{stays:?}");
    assert_ne!(nodes.members(1).await.cluster, nodes.members(2).await.cluster);
}

/// The quarantined part may have been a vote, or its identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_repaired_log_does_not_start() {
    let mut nodes = Nodes::start_all(1).await;
    nodes.timestamp(1).await;
    nodes.stop(1).await;
    let dir = nodes.data(1).join("raft");
    let mut names: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let segment = names.iter().find(|name| name.extension().is_some_and(|it| it == "seg"));
    let segment = segment.unwrap();
    let mut bytes = fs::read(segment).unwrap();
    bytes[4096 + 100] ^= 1;
    fs::write(segment, bytes).unwrap();
    let corrupt = nodes.start(1).await;
    assert!(matches!(corrupt, Err(ServerError::Log(_))), "{corrupt:?}");
    esker_log::repair(&dir, esker_log::Options::default()).unwrap();
    for _ in 0..2 {
        let refused = nodes.start(1).await.unwrap_err();
        assert!(matches!(&refused, ServerError::LogRepaired { dir: named } if *named == dir));
        let why = refused.to_string();
        assert!(why.contains(dir.to_str().unwrap()) && why.contains("new number"), "{why}");
    }
}

/// A copy has the number of the node, which may have voted since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_copied_log_does_not_start() {
    let mut nodes = Nodes::start_all(1).await;
    nodes.timestamp(1).await;
    nodes.stop(1).await;
    let dir = nodes.data(1).join("raft");
    let copy = dir.with_extension("copy");
    let options = esker_consensus::Options::default();
    assert!(esker_consensus::backup_log(&dir, &copy, &options).unwrap().records > 0);
    fs::remove_dir_all(&dir).unwrap();
    fs::rename(&copy, &dir).unwrap();
    let refused = nodes.start(1).await.unwrap_err();
    assert!(
        matches!(&refused, ServerError::LogCopied { dir: named } if *named == dir),
        "{refused}"
    );
    assert!(refused.to_string().contains("new number"), "{refused}");
    let log = esker_consensus::ConsensusLog::open(&dir).unwrap();
    assert!(
        esker_server::is_node_label(&log.options().label) && !esker_server::is_node_label(b"users")
    );
}

/// The member may come later than the node that joins it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_waits_for_the_member_that_it_joins() {
    let port = std::net::TcpListener::bind(own_port()).unwrap().local_addr().unwrap();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut joins = alone(second.path());
    (joins.node, joins.join) = (Some(2), Some(port.to_string()));
    let joining = tokio::spawn(Server::start(joins));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!joining.is_finished(), "{joining:?}");
    let mut options = alone(first.path());
    options.listen = port;
    let first = Server::start(options).await.unwrap();
    let second = tokio::time::timeout(TEST_TIMEOUT, joining).await.unwrap().unwrap().unwrap();
    second.stop().await.unwrap();
    first.stop().await.unwrap();
}

/// A disk that stalls keeps no node from its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_stops_in_time_although_its_disk_stalls() {
    let mut nodes = Nodes::with(1, |options| options.close_timeout = TEST_TIMEOUT / 60).await;
    nodes.timestamp(1).await;
    let stalled = nodes.stall(1).await;
    let server = nodes.servers.remove(&1).unwrap();
    let begun = std::time::Instant::now();
    let stopped = server.stop().await;
    assert!(matches!(&stopped, Err(ServerError::Io(what, _)) if what.contains("in time")));
    assert!(begun.elapsed() < TEST_TIMEOUT / 3, "{:?}", begun.elapsed());
    drop(stalled);
}
