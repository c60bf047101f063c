//! Detection of a second process of the same node.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

use esker_server::Server;

use crate::nodes::{Nodes, alone, data_mismatch};

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

/// The copy has the node's votes: with it the node could vote twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_node_that_runs_stops() {
    let nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    for node in [leader, leader % 3 + 1] {
        let dir = tempfile::tempdir().unwrap();
        copy(&nodes.data(node), dir.path());
        let why = data_mismatch(Server::start(alone(dir.path())).await.unwrap()).await;
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
    let why = data_mismatch(Server::start(old).await.unwrap()).await;
    assert!(why.contains(&format!("as node {moved} at {now}")), "{why}");
    nodes.timestamp(nodes.leader().await).await;
}
