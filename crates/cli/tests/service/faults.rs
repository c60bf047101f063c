//! What clients get is unique and in order, whatever happens to the nodes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use rustix::process::Signal;

use crate::esker::command;
use crate::history::Clients;
use crate::nodes::Nodes;

/// Longer than an election takes.
const STOPPED: Duration = Duration::from_millis(600);

async fn transfer(nodes: &Nodes, to: usize) {
    let endpoint = format!("http://{}", nodes.address(to));
    let words = ["cluster", "transfer", "--endpoint", &endpoint, "--to", &to.to_string()];
    let mut transfer = command(&words);
    let ended = tokio::task::spawn_blocking(move || transfer.output().unwrap()).await.unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_that_are_killed_stopped_and_changed() {
    let mut nodes = Nodes::of(3).await;
    let clients = Clients::of(&nodes.addresses());
    for _ in 0..2 {
        // Killed, and back after the next has served.
        clients.progress(200).await;
        let leader = nodes.agreed().await;
        nodes.kill(leader);
        clients.progress(200).await;
        nodes.start(leader);
        nodes.ready(leader).await;

        // Killed, and back within an interval of epochs.
        let leader = nodes.agreed().await;
        nodes.kill(leader);
        nodes.start(leader);
        clients.progress(200).await;

        // Stopped for longer than an election, with clients that wait for it.
        let leader = nodes.agreed().await;
        nodes.signal(leader, Signal::STOP);
        clients.progress(200).await;
        tokio::time::sleep(STOPPED).await;
        nodes.signal(leader, Signal::CONT);
        clients.progress(200).await;

        // To another node and back, within an interval of epochs.
        let leader = nodes.agreed().await;
        let other = leader % 3 + 1;
        transfer(&nodes, other).await;
        transfer(&nodes, leader).await;
        clients.progress(200).await;
    }
    clients.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quorums_that_are_lost_and_clusters_that_restart() {
    let mut nodes = Nodes::of(3).await;
    let clients = Clients::of(&nodes.addresses());
    for _ in 0..2 {
        clients.progress(200).await;
        let leader = nodes.agreed().await;
        let others: Vec<_> = (1..=3).filter(|node| *node != leader).collect();
        for node in &others {
            nodes.kill(*node);
        }
        tokio::time::sleep(STOPPED).await;
        for node in &others {
            nodes.start(*node);
        }
        clients.progress(200).await;

        // All at once, and back within an interval of epochs.
        nodes.agreed().await;
        for node in 1..=3 {
            nodes.kill(node);
        }
        for node in 1..=3 {
            nodes.start(node);
        }
        clients.progress(200).await;

        // As an operator restarts them.
        nodes.agreed().await;
        for node in 1..=3 {
            nodes.signal(node, Signal::TERM);
        }
        for node in 1..=3 {
            assert_eq!(nodes.ended(node), Some(0));
        }
        for node in 1..=3 {
            nodes.start(node);
        }
        clients.progress(200).await;
    }
    clients.check().await;
}
