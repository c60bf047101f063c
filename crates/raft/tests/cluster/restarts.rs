//! What a cluster acknowledged is there in the same order on every node, after power cuts of one
//! node, of all nodes, and after a node that was cut off for so long that it needs a snapshot.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use esker_disk::sim::{Persist, SimDisk};
use esker_raft::openraft::async_runtime::watch::WatchReceiver;
use esker_raft::openraft::{EmptyNode, ReadPolicy};

use crate::network::{Network, Node};

/// Longer than any election here takes.
const LONG: Duration = Duration::from_secs(30);

struct Cluster {
    network: Network,
    nodes: BTreeMap<u64, (Node, SimDisk)>,
    /// What was acknowledged, in order.
    written: Vec<String>,
}

impl Cluster {
    async fn start() -> Self {
        let network = Network::default();
        let mut nodes = BTreeMap::new();
        for id in 1..=3 {
            let disk = SimDisk::new(id);
            nodes.insert(id, (network.start(id, &disk).await, disk));
        }
        let members: BTreeMap<_, _> = (1..=3).map(|id| (id, EmptyNode {})).collect();
        nodes[&1].0.initialize(members).await.unwrap();
        Self { network, nodes, written: Vec::new() }
    }

    /// The node that leads, and can prove it.
    async fn leader(&self) -> u64 {
        let deadline = Instant::now() + LONG;
        loop {
            for (id, (node, _)) in &self.nodes {
                let proof = node.ensure_linearizable(ReadPolicy::ReadIndex);
                if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(1), proof).await {
                    return *id;
                }
            }
            assert!(Instant::now() < deadline, "no node leads");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Writes until so many more are acknowledged. One that is not acknowledged may appear, so the
    /// next has another text.
    /// Returns the index of the last.
    async fn write(&mut self, count: usize) -> u64 {
        let (end, mut attempt, mut last) = (self.written.len() + count, 0, 0);
        while self.written.len() < end {
            let leader = &self.nodes[&self.leader().await].0;
            let text = format!("{}-{attempt}", self.written.len());
            attempt += 1;
            let written = tokio::time::timeout(LONG, leader.client_write(text.clone())).await;
            if let Ok(Ok(written)) = written {
                last = written.log_id.index;
                self.written.push(text);
            }
        }
        last
    }

    /// Cuts the power of a node.
    async fn cut_power(&mut self, id: u64) -> SimDisk {
        let (node, disk) = self.nodes.remove(&id).unwrap();
        self.network.stop(id);
        disk.power_cut(Persist::Random);
        drop(node.shutdown().await);
        drop(node);
        disk.power_on();
        disk
    }

    async fn restart(&mut self, id: u64, disk: SimDisk) {
        let node = self.network.start(id, &disk).await;
        self.nodes.insert(id, (node, disk));
    }

    /// Waits until all nodes have applied the same, and compares it with what was acknowledged.
    async fn check(&mut self) {
        // Metrics may lag behind the answer.
        let last = self.write(1).await;
        let mut registers = Vec::new();
        for (id, (node, _)) in &self.nodes {
            let wait = node.wait(Some(LONG));
            let applied = wait.applied_index_at_least(Some(last), "the last write").await;
            applied.unwrap_or_else(|error| panic!("node {id}: {error}"));
            let register = node.with_state_machine(|machine| {
                let words = machine.with(|register| register.0.clone());
                Box::pin(async move { words })
            });
            registers.push(register.await.unwrap());
        }
        let first = &registers[0];
        assert!(registers.iter().all(|register| register == first), "{registers:?}");
        // In the same order; what was not acknowledged may be in between.
        let mut applied = first.iter();
        for text in &self.written {
            assert!(applied.any(|word| word == text), "{text} is lost: {first:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_survives_power_cuts() {
    let mut cluster = Cluster::start().await;
    cluster.write(20).await;
    cluster.check().await;
    // The leader, three times.
    for _ in 0..3 {
        let leader = cluster.leader().await;
        let disk = cluster.cut_power(leader).await;
        cluster.write(10).await;
        cluster.restart(leader, disk).await;
        cluster.check().await;
    }
    // All of them.
    let mut disks = BTreeMap::new();
    for id in 1..=3 {
        disks.insert(id, cluster.cut_power(id).await);
    }
    for (id, disk) in disks {
        cluster.restart(id, disk).await;
    }
    cluster.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_cut_off_gets_a_snapshot() {
    let mut cluster = Cluster::start().await;
    cluster.write(5).await;
    let leader = cluster.leader().await;
    let away = (1..=3).find(|id| *id != leader).unwrap();
    cluster.network.cut_off(away);
    cluster.write(50).await;
    for (id, (node, _)) in &cluster.nodes {
        if *id != away {
            let last = node.metrics().borrow_watched().last_applied.unwrap();
            let wait = node.wait(Some(LONG));
            node.trigger().snapshot().await.unwrap();
            wait.metrics(|now| now.snapshot >= Some(last), "a snapshot").await.unwrap();
            node.trigger().purge_log(last.index).await.unwrap();
            wait.metrics(|now| now.purged >= Some(last), "a purge").await.unwrap();
        }
    }
    cluster.network.connect(away);
    cluster.check().await;
    let snapshot = cluster.nodes[&away].0.metrics().borrow_watched().snapshot;
    assert!(snapshot.is_some_and(|last| last.index > 50), "{snapshot:?}");
    // It is there after a power cut, and the log after it.
    let disk = cluster.cut_power(away).await;
    cluster.restart(away, disk).await;
    cluster.check().await;
}
