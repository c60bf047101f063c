//! Nodes, each with a folder and addresses of its own.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use esker_disk::{Latency, SlowDisk, StdDisk};
use esker_server::{Members, NodeStatus, Server, ServerError, ServerOptions, ask};
use esker_testkit::own_address;
use tokio::sync::{Mutex, MutexGuard};

pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The round trip of nodes whose tests cause all elections. A busy machine keeps a leader from its
/// processors for longer than the default election timeout, 45 ms.
const ROUND_TRIP: Duration = Duration::from_millis(100);
const LEASE: Duration = ROUND_TRIP.saturating_mul(8);

/// Where all nodes of these tests listen.
pub static HOST: LazyLock<IpAddr> = LazyLock::new(|| IpAddr::V4(own_address()));

/// Where one node may listen: nothing else takes the port while the node is down.
pub fn own_port() -> SocketAddr {
    static NEXT_PORT: AtomicU16 = AtomicU16::new(8000);
    SocketAddr::new(*HOST, NEXT_PORT.fetch_add(1, Relaxed))
}

/// A node alone, on ports that the system chooses.
pub fn alone(data: &Path) -> ServerOptions {
    let mut options = ServerOptions::new(data);
    (options.listen, options.raft_listen) = (own_port(), own_port());
    options
}

/// Waits until the node has failed because its data is not for it, and returns the reason.
pub async fn data_mismatch(server: Server) -> String {
    let failed = tokio::time::timeout(TEST_TIMEOUT, server.failed()).await.unwrap();
    drop(server.stop().await);
    match failed {
        ServerError::DataMismatch(why) => why,
        other => panic!("{other:?}"),
    }
}

/// A disk that stalls until this is dropped, also by a test that fails.
///
/// One at a time: the logs of a process share four threads that commit, and a log whose disk stalls
/// keeps up to two of them.
pub struct DiskStall {
    disk: SlowDisk,
    _alone: MutexGuard<'static, ()>,
}

impl Drop for DiskStall {
    fn drop(&mut self) {
        self.disk.stall(false);
    }
}

pub struct Nodes {
    dir: tempfile::TempDir,
    pub servers: BTreeMap<u64, Server>,
    addresses: BTreeMap<u64, (SocketAddr, SocketAddr)>,
    disks: BTreeMap<u64, SlowDisk>,
    /// Applied to the options of each node.
    pub change: fn(&mut ServerOptions),
}

impl Nodes {
    pub fn none() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            servers: BTreeMap::new(),
            addresses: BTreeMap::new(),
            disks: BTreeMap::new(),
            change: |_| {},
        }
    }

    pub async fn stall(&self, node: u64) -> DiskStall {
        static STALL_LOCK: Mutex<()> = Mutex::const_new(());
        let alone = STALL_LOCK.lock().await;
        let disk = self.disks[&node].clone();
        disk.stall(true);
        DiskStall { disk, _alone: alone }
    }

    pub async fn start_all(count: u64) -> Self {
        Self::with(count, |_| {}).await
    }

    pub async fn with(count: u64, change: fn(&mut ServerOptions)) -> Self {
        let mut nodes = Self { change, ..Self::none() };
        for node in 1..=count {
            nodes.start(node).await.unwrap();
        }
        nodes.wait_for_voters(count as usize).await;
        nodes
    }

    pub fn data(&self, node: u64) -> PathBuf {
        self.dir.path().join(format!("node{node}"))
    }

    /// Has the node listen at addresses of its own from now on; returns that of clients.
    pub fn reserve(&mut self, node: u64) -> String {
        self.addresses.insert(node, (own_port(), own_port()));
        self.address(node)
    }

    /// The options of a node: at its addresses, and joining the first if it is not the first.
    pub fn options(&mut self, node: u64) -> ServerOptions {
        let mut options = ServerOptions::new(self.data(node));
        (options.listen, options.raft_listen) =
            self.addresses.get(&node).copied().unwrap_or_else(|| (own_port(), own_port()));
        options.node = Some(node);
        options.join = (node > 1).then(|| self.addresses.get(&1).unwrap().0.to_string());
        options.round_trip = ROUND_TRIP;
        let disk = || SlowDisk::new(Arc::new(StdDisk::new()), Latency::NONE);
        options.disk = Arc::new(self.disks.entry(node).or_insert_with(disk).clone());
        (self.change)(&mut options);
        options
    }

    pub async fn start(&mut self, node: u64) -> Result<(), ServerError> {
        let options = self.options(node);
        self.start_with(node, options).await
    }

    pub async fn start_with(
        &mut self,
        node: u64,
        options: ServerOptions,
    ) -> Result<(), ServerError> {
        let server = Server::start(options).await?;
        self.addresses.insert(node, (server.address(), server.raft_address()));
        self.servers.insert(node, server);
        Ok(())
    }

    /// The node has other addresses at its next start.
    pub fn forget_addresses(&mut self, node: u64) {
        self.addresses.remove(&node);
    }

    pub async fn stop(&mut self, node: u64) {
        self.servers.remove(&node).unwrap().stop().await.unwrap();
    }

    pub async fn status(&self, node: u64) -> NodeStatus {
        let answer = ask(&self.address(node), "/status", None, TEST_TIMEOUT).await.unwrap();
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Stops the leader when it has noticed that the other one is gone: no node gets leadership.
    pub async fn stop_both(&mut self, other: u64, leader: u64) {
        self.stop(other).await;
        tokio::time::sleep(3 * LEASE + Duration::from_millis(50)).await;
        self.stop(leader).await;
    }

    pub fn address(&self, node: u64) -> String {
        self.addresses[&node].0.to_string()
    }

    pub async fn metrics(&self, node: u64) -> String {
        let answer = ask(&self.address(node), "/metrics", None, TEST_TIMEOUT).await.unwrap();
        answer.text()
    }

    pub async fn members(&self, node: u64) -> Members {
        let answer = ask(&self.address(node), "/members", None, TEST_TIMEOUT).await.unwrap();
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Waits until every running node knows one leader and so many voters, and that no change of
    /// them is under way, and returns the leader.
    pub async fn wait_for_voters(&self, count: usize) -> u64 {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let mut leaders = Vec::new();
            for node in self.servers.keys() {
                let Members { leader, members, changing, .. } = self.members(*node).await;
                let voters = members.iter().filter(|member| member.voter).count();
                let is_done = voters == count && !changing;
                leaders.push(leader.map(|leader| leader.node).filter(|_| is_done));
            }
            leaders.dedup();
            if let [Some(leader)] = leaders[..]
                && self.servers.contains_key(&leader)
            {
                return leader;
            }
            assert!(Instant::now() < deadline, "{leaders:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn leader(&self) -> u64 {
        self.wait_for_voters(self.members(*self.servers.keys().next().unwrap()).await.members.len())
            .await
    }

    /// The nodes that this one names as the leader, in each way that it has.
    pub async fn named_leaders(&self, node: u64) -> Vec<u64> {
        let text =
            async |path| ask(&self.address(node), path, None, TEST_TIMEOUT).await.unwrap().text();
        let (status, clock, metrics) =
            (self.status(node).await, text("/clock").await, text("/metrics").await);
        let leads = [
            status.role == "leader",
            clock.contains("\"leads\":true"),
            metrics.lines().any(|line| ["esker_leader 1", "esker_leader 1.0"].contains(&line)),
        ];
        let own = leads.into_iter().filter(|leads| *leads).map(|_| node);
        let named = self.members(node).await.leader.map(|leader| leader.node);
        own.chain(named).chain(status.leader).collect()
    }

    /// A timestamp from this node, as soon as it leads.
    pub async fn timestamp(&self, node: u64) -> Vec<u8> {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let answer = ask(&self.address(node), "/timestamp", None, TEST_TIMEOUT).await.unwrap();
            if answer.status == 200 {
                return answer.body.to_vec();
            }
            assert!(Instant::now() < deadline, "{answer:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
