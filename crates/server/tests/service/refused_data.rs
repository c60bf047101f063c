//! Data that a node refuses to run with: of another cluster, repaired, or a copy.
#![allow(clippy::unwrap_used)]

use std::fs;

use esker_server::{Server, ServerError};

use crate::nodes::{Nodes, TEST_TIMEOUT, alone, data_mismatch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_another_cluster_is_not_joined() {
    let nodes = Nodes::start_all(1).await;
    let cluster = nodes.members(1).await.cluster;
    let dir = tempfile::tempdir().unwrap();
    let other = Server::start(alone(dir.path())).await.unwrap();
    other.stop().await.unwrap();
    let mut options = alone(dir.path());
    options.join = Some(nodes.address(1));
    let why = data_mismatch(Server::start(options.clone()).await.unwrap()).await;
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
