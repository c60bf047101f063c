//! A cluster of nodes on simulated disks and real connections.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_disk::sim::{Persist, SimDisk};
use esker_raft::{
    ClusterId, Command, Commands, ConsensusLog, Machine, Member, Node, NodeError, NodeOptions,
    PeerSecurity, Prover, Replica, WallClock,
};
use esker_testkit::own_address;
use tokio::sync::watch;

use crate::proxy::{ANSWER_PAIRS, LONG_MESSAGE_PAIRS, PROOF_PAIRS, Proxy};

/// The round trip of a cluster in which no other election may come between: on a busy machine a
/// leader gets no processor for longer than the election timeout of [`Group::with_three_nodes`], 45
/// ms.
pub const SLOW_ROUND_TRIP: Duration = Duration::from_millis(300);

pub const CLUSTER: ClusterId = ClusterId([3; 16]);
/// Longer than anything here takes.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A wait that is expected to end without success.
pub const SHORT_WAIT: Duration = Duration::from_millis(400);
/// The round-trip time of nodes on this machine.
pub const ROUND_TRIP: Duration = Duration::from_millis(10);

/// The highest number that a node is cut off from.
const NODE_NUMBER_MAX: u64 = 32;

/// Everything that was applied, in order.
#[derive(Default)]
pub struct Words(pub Vec<String>);

impl Machine<Commands> for Words {
    fn apply(&mut self, command: Command) -> io::Result<Bytes> {
        let word = String::from_utf8(command.0.to_vec()).map_err(io::Error::other)?;
        self.0.push(word);
        Ok(self.0.len().to_string().into())
    }

    fn answer(&self) -> Bytes {
        Bytes::new()
    }

    fn state(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.0.join("\n").into_bytes())))
    }

    fn restore(&mut self, state: &mut dyn Read) -> io::Result<()> {
        self.0 = io::read_to_string(state)?.lines().map(str::to_owned).collect();
        Ok(())
    }
}

pub fn command(text: impl Into<String>) -> Command {
    Command(Bytes::from(text.into()))
}

/// Starts a node, and returns it with its address.
pub fn start_on(disk: &SimDisk, id: u64, round_trip: Duration) -> (Node, SocketAddr) {
    start_with(disk, id, round_trip, &Replica::new(Words::default()))
}

pub fn start_with(
    disk: &SimDisk,
    id: u64,
    round_trip: Duration,
    words: &Replica<Words>,
) -> (Node, SocketAddr) {
    start_secured(disk, id, round_trip, words, None)
}

pub fn start_secured(
    disk: &SimDisk,
    id: u64,
    round_trip: Duration,
    words: &Replica<Words>,
    security: Option<Arc<dyn PeerSecurity>>,
) -> (Node, SocketAddr) {
    let log = ConsensusLog::builder("/raft").disk(Arc::new(disk.clone())).open().unwrap();
    let listener = TcpListener::bind((own_address(), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let clock = WallClock::default();
    let options =
        NodeOptions { node: id, cluster: CLUSTER, log, listener, security, round_trip, clock };
    (Node::start(options, words).unwrap(), address)
}

pub struct Group {
    pub nodes: BTreeMap<u64, Arc<Node>>,
    words: BTreeMap<u64, Replica<Words>>,
    disks: BTreeMap<u64, SimDisk>,
    proxies: BTreeMap<u64, Proxy>,
    cuts: watch::Sender<BTreeSet<(u64, u64)>>,
    /// The commands that were acknowledged, in order.
    written: Vec<String>,
    attempts: u64,
    round_trip: Duration,
}

impl Group {
    pub fn new() -> Self {
        Self::new_at(ROUND_TRIP)
    }

    /// Creates a group without nodes, which will have this round-trip time.
    pub fn new_at(round_trip: Duration) -> Self {
        Self {
            round_trip,
            nodes: BTreeMap::new(),
            words: BTreeMap::new(),
            disks: BTreeMap::new(),
            proxies: BTreeMap::new(),
            cuts: watch::Sender::default(),
            written: Vec::new(),
            attempts: 0,
        }
    }

    /// Starts three nodes, of which the first leads.
    pub async fn with_three_nodes() -> Self {
        Self::with_three_nodes_at(ROUND_TRIP).await
    }

    /// Starts three nodes with this round-trip time: an election timeout is up to eight of them. A
    /// leader that gets no processor for that long is deposed, and rightly.
    pub async fn with_three_nodes_at(round_trip: Duration) -> Self {
        let mut group = Self::new_at(round_trip);
        group.start(1).await;
        let member = group.member(1);
        group.nodes[&1].bootstrap(member).await.unwrap();
        for id in [2, 3] {
            group.start(id).await;
            group.add(id).await;
        }
        group.give_leadership_to(1).await;
        group
    }

    /// Transfers leadership until this node has it: a busy machine may have elected another.
    async fn give_leadership_to(&self, id: u64) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let leader = self.leader().await;
            if leader == id {
                return;
            }
            let transferred = self.nodes[&leader].transfer(id, TEST_TIMEOUT).await;
            assert!(Instant::now() < deadline, "node {id} does not lead: {transferred:?}");
        }
    }

    pub fn member(&self, id: u64) -> Member {
        Member {
            raft: self.proxies[&id].address.to_string(),
            client: format!("client-{id}"),
            store: id.into(),
            removed: Vec::new(),
        }
    }

    /// Starts a node, with what is on its disk.
    pub async fn start(&mut self, id: u64) {
        let disk = self.disks.entry(id).or_insert_with(|| SimDisk::new(id)).clone();
        if !self.proxies.contains_key(&id) {
            self.proxies.insert(id, Proxy::new(id, self.cuts.subscribe()).await);
        }
        let words = Replica::new(Words::default());
        let (node, address) = start_with(&disk, id, self.round_trip, &words);
        self.proxies[&id].leads_to(Some(address));
        self.nodes.insert(id, Arc::new(node));
        self.words.insert(id, words);
    }

    pub fn prover(&self, id: u64) -> Prover {
        Prover::new(Arc::clone(&self.nodes[&id]))
    }

    /// Cuts the power of a node.
    pub fn cut_power(&mut self, id: u64) {
        let node = self.nodes.remove(&id).unwrap();
        self.proxies[&id].leads_to(None);
        self.disks[&id].power_cut(Persist::Random);
        drop(node.stop());
        self.disks[&id].power_on();
    }

    /// A copy of what is on the disk of a node, of which the node knows nothing.
    pub fn copy_disk(&self, id: u64) -> SimDisk {
        self.disks[&id].fork(id)
    }

    /// Starts a node that has lost its power with that on its disk.
    pub async fn start_with_copy(&mut self, id: u64, copy: SimDisk) {
        self.cut_power(id);
        self.disks.insert(id, copy);
        self.start(id).await;
    }

    /// No node reaches this one, and it reaches none.
    pub fn cut_off(&self, id: u64) {
        self.cut_off_but_for_proofs(id);
        let pairs = (1..=NODE_NUMBER_MAX).flat_map(|other| [(id, other), (other, id)]);
        let pairs = pairs.map(|(from, to)| (from + PROOF_PAIRS, to));
        self.cuts.send_modify(|cuts| cuts.extend(pairs));
    }

    /// Cuts the two nodes off from each other.
    pub fn part(&self, one: u64, other: u64) {
        let ways = [(one, other), (other, one)];
        let for_proofs = ways.map(|(from, to)| (from + PROOF_PAIRS, to));
        self.cuts.send_modify(|cuts| cuts.extend(ways.into_iter().chain(for_proofs)));
    }

    /// Cuts off the answers to this node. Its requests reach the others.
    pub fn cut_answers(&self, id: u64) {
        let pairs = (1..=NODE_NUMBER_MAX).map(|other| (id + ANSWER_PAIRS, other));
        self.cuts.send_modify(|cuts| cuts.extend(pairs));
    }

    /// Cuts off the requests of this node, but for proofs.
    pub fn cut_requests(&self, id: u64) {
        self.cuts.send_modify(|cuts| cuts.extend((1..=NODE_NUMBER_MAX).map(|other| (id, other))));
    }

    /// Queries of proofs of the first do not reach the second.
    pub fn cut_proofs(&self, from: u64, to: u64) {
        self.cuts.send_modify(|cuts| cuts.extend([(from + PROOF_PAIRS, to)]));
    }

    /// Cuts off the node, but for the queries and answers of proofs.
    pub fn cut_off_but_for_proofs(&self, id: u64) {
        let pairs = (1..=NODE_NUMBER_MAX).flat_map(|other| [(id, other), (other, id)]);
        self.cuts.send_modify(|cuts| cuts.extend(pairs));
    }

    /// The node gets no long entries any more, and heartbeats as before.
    pub fn hold_long_entries(&self, id: u64) {
        self.cuts.send_modify(|cuts| {
            cuts.extend((1..=NODE_NUMBER_MAX).map(|other| (other, id + LONG_MESSAGE_PAIRS)));
        });
    }

    /// The node gets long entries again.
    pub fn release_long_entries(&self, id: u64) {
        self.cuts.send_modify(|cuts| cuts.retain(|(_, to)| *to != id + LONG_MESSAGE_PAIRS));
    }

    pub fn connect(&self) {
        self.cuts.send_modify(BTreeSet::clear);
    }

    /// Adds a node that runs, through the leader of the moment, until it has a vote.
    pub async fn add(&self, id: u64) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let leader = self.leader().await;
            let node = &self.nodes[&leader];
            match node.add(id, self.member(id), TEST_TIMEOUT).await {
                Ok(()) => return,
                Err(error) => assert!(Instant::now() < deadline, "node {id}: {error}"),
            }
        }
    }

    /// Removes a node, from the leader of the moment, also one that a change before has removed.
    pub async fn remove(&self, id: u64) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let leader = self.leader().await;
            let node = &self.nodes[&leader];
            let removed = match leader == id {
                true => node.resign(TEST_TIMEOUT).await.and(Err(NodeError::TimedOut)),
                false => node.remove(id, TEST_TIMEOUT).await,
            };
            match removed {
                Ok(()) => return,
                Err(NodeError::Membership(why)) if why.contains("does not belong") => return,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        }
    }

    /// The node that can prove that it leads.
    pub async fn leader(&self) -> u64 {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            for (id, node) in &self.nodes {
                if node.ensure_linearizable(SHORT_WAIT).await.is_ok() {
                    return *id;
                }
            }
            assert!(Instant::now() < deadline, "no node leads: {:?}", self.nodes);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Writes until so many more are acknowledged. One that is not acknowledged may appear, so the
    /// next has another text.
    pub async fn write(&mut self, count: usize) {
        let end = self.written.len() + count;
        while self.written.len() < end {
            let leader = &self.nodes[&self.leader().await];
            let text = format!("word-{}", self.attempts);
            self.attempts += 1;
            match leader.propose(command(text.clone()), TEST_TIMEOUT).await {
                Ok(_) => self.written.push(text),
                Err(NodeError::Stopped(why)) => panic!("a node has stopped: {why}"),
                Err(_) => {}
            }
        }
    }

    /// Waits until all nodes have applied the same, and compares it with what was acknowledged.
    pub async fn check(&mut self) {
        self.write(1).await;
        // The status may lag behind the answer; the state machine of the leader does not.
        let all = self.words[&self.leader().await].with(|words| words.0.len());
        let deadline = Instant::now() + TEST_TIMEOUT;
        let mut words = Vec::new();
        for (id, node) in &self.nodes {
            while self.words[id].with(|words| words.0.len()) < all {
                assert!(Instant::now() < deadline, "node {id} lags: {node:?}");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            words.push(self.words[id].with(|words| words.0.clone()));
        }
        assert!(words.iter().all(|some| *some == words[0]), "{words:?}");
        // In the same order; what was not acknowledged may be in between.
        let mut applied = words[0].iter();
        for text in &self.written {
            assert!(applied.any(|word| word == text), "{text} is lost: {:?}", words[0]);
        }
    }
}
