//! A cluster of oracles on simulated disks and real connections, and its clients.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use esker_disk::sim::{Persist, SimDisk};
use esker_disk::{Latency, SlowDisk};
use esker_log::Engine;
use esker_oracle::history::{Call, check, in_milliseconds};
use esker_oracle::{LeaseReads, Oracle, OracleError, OracleOptions, OracleState, Timestamp};
use esker_raft::{
    ClusterId, ConsensusLog, Member, Node, NodeError, NodeOptions, Replica, WallClock,
};
use tokio::sync::watch;

use crate::proxy::Proxy;

pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// The round trip of a cluster in which no other election may come between, on a busy machine too.
pub const SLOW_ROUND_TRIP: Duration = Duration::from_millis(300);
/// The tasks that request timestamps, one after the other.
const CLIENT_TASKS: usize = 24;

pub struct Peer {
    pub node: Arc<Node>,
    state: Replica<OracleState>,
    pub oracle: Oracle,
}

pub struct Cluster {
    peers: Arc<Mutex<BTreeMap<u64, Peer>>>,
    disks: BTreeMap<u64, SimDisk>,
    /// The disks as the nodes see them: they can stall.
    devices: BTreeMap<u64, SlowDisk>,
    proxies: BTreeMap<u64, Proxy>,
    cuts: watch::Sender<BTreeSet<(u64, u64)>>,
    /// The seconds by which the clock of each node is ahead.
    pub ahead: BTreeMap<u64, Arc<AtomicI64>>,
    options: OracleOptions,
    round_trip: Duration,
}

/// Returns whether the node has lost its leadership since a check: a busy machine has elections.
pub fn has_no_lead(error: &NodeError) -> bool {
    matches!(error, NodeError::NotLeader { .. } | NodeError::NoQuorum | NodeError::Unknown)
}

/// Returns whether the node was deposed, as [`has_no_lead`].
pub fn was_deposed(error: &OracleError) -> bool {
    match error {
        OracleError::NotLeader { .. } => true,
        OracleError::Unavailable(error) => has_no_lead(error),
        _ => false,
    }
}

impl Cluster {
    /// Nodes 1 and above, of which the first leads.
    pub async fn with_nodes(count: u64, options: OracleOptions) -> Self {
        Self::with_nodes_at(ROUND_TRIP, count, options).await
    }

    pub async fn with_nodes_at(round_trip: Duration, count: u64, options: OracleOptions) -> Self {
        let ids = 1..=count;
        let (cuts, mut proxies) = (watch::Sender::default(), BTreeMap::new());
        for id in ids.clone() {
            proxies.insert(id, Proxy::new(id, cuts.subscribe()).await);
        }
        let disks: BTreeMap<_, _> = ids.clone().map(|id| (id, SimDisk::new(id))).collect();
        let device = |disk: &SimDisk| SlowDisk::new(Arc::new(disk.clone()), Latency::NONE);
        let mut cluster = Self {
            peers: Arc::default(),
            devices: disks.iter().map(|(id, disk)| (*id, device(disk))).collect(),
            disks,
            proxies,
            cuts,
            ahead: ids.clone().map(|id| (id, Arc::default())).collect(),
            options,
            round_trip,
        };
        cluster.start(1);
        let first = cluster.node(1);
        first.bootstrap(cluster.member(1)).await.unwrap();
        first.wait_for(TEST_TIMEOUT, |status| status.leads()).await.unwrap();
        for id in ids.skip(1) {
            cluster.start(id);
            let deadline = Instant::now() + TEST_TIMEOUT;
            let add = async || {
                let leader = cluster.node(cluster.leader().await);
                leader.add(id, cluster.member(id), TEST_TIMEOUT).await
            };
            while let Err(error) = add().await {
                assert!(has_no_lead(&error) && Instant::now() < deadline, "node {id}: {error}");
            }
        }
        cluster.lead(1).await;
        cluster
    }

    /// Gives leadership to this node, also when a busy machine has another election.
    pub async fn lead(&self, to: u64) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let leader = self.leader().await;
            if leader == to {
                return;
            }
            match self.node(leader).transfer(to, TEST_TIMEOUT).await {
                Ok(()) => return,
                // Another node was elected meanwhile.
                Err(NodeError::Membership(_)) if self.leader().await != leader => {}
                Err(error) => {
                    assert!(has_no_lead(&error) && Instant::now() < deadline, "node {to}: {error}");
                }
            }
        }
    }

    /// A timestamp of this node, which leads, also when a busy machine has another election.
    pub async fn timestamp(&self, id: u64) -> Timestamp {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            self.lead(id).await;
            match self.oracle(id).timestamps(1).await {
                Ok(range) => return range.first,
                Err(error) => assert!(was_deposed(&error) && Instant::now() < deadline, "{error}"),
            }
        }
    }

    /// Switches reads under a lease.
    pub async fn switch_leases(&self, on: bool) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let node = self.node(self.leader().await);
            match node.propose(LeaseReads(on).encode(), TEST_TIMEOUT).await {
                Ok(_) => return,
                Err(error) => assert!(has_no_lead(&error) && Instant::now() < deadline, "{error}"),
            }
        }
    }

    fn member(&self, id: u64) -> Member {
        Member {
            raft: self.proxies[&id].address.to_string(),
            client: String::new(),
            ..Member::default()
        }
    }

    /// No node reaches this one, and it reaches none. Its clients still reach it.
    pub fn cut_off(&self, id: u64) {
        let others = self.disks.keys().flat_map(|other| [(id, *other), (*other, id)]);
        self.cuts.send_modify(|cuts| cuts.extend(others));
    }

    /// Stalls the disk of a node, or ends that.
    pub fn stall(&self, id: u64, stalled: bool) {
        self.devices[&id].stall(stalled);
    }

    pub fn connect(&self) {
        self.cuts.send_modify(BTreeSet::clear);
    }

    pub fn start(&mut self, id: u64) {
        let disk = Arc::new(self.devices[&id].clone());
        // Its own threads: a disk that stalls keeps two.
        let engine = Engine::new(2).unwrap();
        let log = ConsensusLog::builder("/raft").disk(disk).engine(engine).open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        self.proxies[&id].leads_to(Some(listener.local_addr().unwrap()));
        let (cluster, round_trip) = (ClusterId([5; 16]), self.round_trip);
        let ahead = Arc::clone(&self.ahead[&id]);
        let clock = WallClock::new(move || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let shown = now.as_nanos() as i128 + i128::from(ahead.load(SeqCst)) * 1_000_000_000;
            u64::try_from(shown.max(0)).unwrap_or(u64::MAX)
        });
        let options =
            NodeOptions { node: id, cluster, log, listener, security: None, round_trip, clock };
        let state = Replica::new(OracleState::default());
        let node = Arc::new(Node::start(options, &state).unwrap());
        let oracle = Oracle::start(Arc::clone(&node), state.clone(), self.options.clone());
        self.peers.lock().unwrap().insert(id, Peer { node, state, oracle });
    }

    pub fn node(&self, id: u64) -> Arc<Node> {
        Arc::clone(&self.peers.lock().unwrap()[&id].node)
    }

    /// Another oracle on the same node.
    pub fn another_oracle(&self, id: u64, options: OracleOptions) -> Oracle {
        let peers = self.peers.lock().unwrap();
        let Peer { node, state, .. } = &peers[&id];
        Oracle::start(Arc::clone(node), state.clone(), options)
    }

    pub fn oracle(&self, id: u64) -> Oracle {
        self.peers.lock().unwrap()[&id].oracle.clone()
    }

    /// The oracle of each node that runs, for tasks.
    pub fn oracles(&self) -> impl Fn(u64) -> Option<Oracle> + Send + Sync + use<> {
        let peers = Arc::clone(&self.peers);
        move |id| peers.lock().unwrap().get(&id).map(|peer| peer.oracle.clone())
    }

    pub async fn leader(&self) -> u64 {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            for id in self.disks.keys() {
                let node = self.peers.lock().unwrap().get(id).map(|peer| Arc::clone(&peer.node));
                if let Some(node) = node
                    && node.ensure_linearizable(Duration::from_millis(300)).await.is_ok()
                {
                    return *id;
                }
            }
            assert!(Instant::now() < deadline, "no node leads");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Cuts the power of a node.
    pub async fn cut_power(&mut self, id: u64) {
        let Peer { node, oracle, .. } = self.peers.lock().unwrap().remove(&id).unwrap();
        self.proxies[&id].leads_to(None);
        self.disks[&id].power_cut(Persist::Random);
        drop(oracle);
        // Calls of clients have it for a moment.
        let mut node = node;
        let node = loop {
            match Arc::try_unwrap(node) {
                Ok(node) => break node,
                Err(shared) => node = shared,
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        drop(node.stop());
        self.disks[&id].power_on();
    }

    /// Clients that ask until they are stopped.
    pub fn clients(&self) -> Clients {
        let stop = Arc::new(AtomicBool::new(false));
        let begun = Instant::now();
        let tasks = (0..CLIENT_TASKS).map(|number| {
            let (peers, stop) = (Arc::clone(&self.peers), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut calls = Vec::new();
                let mut node = 1 + number as u64 % 3;
                let now = || begun.elapsed().as_nanos() as u64;
                while !stop.load(SeqCst) {
                    let oracle = peers.lock().unwrap().get(&node).map(|peer| peer.oracle.clone());
                    let count = if number % 4 == 0 { 100 } else { 1 };
                    let called = now();
                    match oracle {
                        Some(oracle) => match oracle.timestamps(count).await {
                            Ok(range) => calls.push(Call { called, returned: now(), range }),
                            Err(_) => node = node % 3 + 1,
                        },
                        None => node = node % 3 + 1,
                    }
                    // Half of them ask all nodes in turn, and so both sides of a partition.
                    if number % 2 == 1 {
                        node = node % 3 + 1;
                    }
                    tokio::time::sleep(Duration::from_micros(200)).await;
                }
                calls
            })
        });
        let tasks = tasks.collect();
        Clients { stop, tasks }
    }
}

pub struct Clients {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<Vec<Call>>>,
}

impl Clients {
    /// Stops them, checks what they got, and returns how many calls were answered.
    pub async fn check(self) -> usize {
        self.stop.store(true, SeqCst);
        let mut calls = Vec::new();
        for task in self.tasks {
            calls.extend(tokio::time::timeout(TEST_TIMEOUT, task).await.unwrap().unwrap());
        }
        check(&calls).unwrap_or_else(|violation| panic!("{violation}"));
        check(&in_milliseconds(&calls)).unwrap_or_else(|violation| panic!("{violation}"));
        calls.len()
    }
}
