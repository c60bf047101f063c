//! Nodes of one cluster in one process, on loopback, and 64 tasks that propose 100 bytes each:
//! `cargo run --release -p esker-raft --example proposers -- NODES SECONDS DIR`.
//!
//! Prints one JSON object: how many commands were committed and applied in a second, and how long
//! one took. Every answer is compared with what the state machine has applied in the end.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::{self, Cursor, Read};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_raft::{
    ClusterId, Command, Commands, ConsensusLog, Machine, Member, Node, NodeError, NodeOptions,
    Replica, WallClock,
};

const PROPOSER_TASKS: usize = 64;
const COMMAND_BYTES: usize = 100;
const PROPOSAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Counts commands.
struct Counter(u64);

impl Machine<Commands> for Counter {
    fn apply(&mut self, _command: Command) -> io::Result<Bytes> {
        self.0 += 1;
        Ok(Bytes::copy_from_slice(&self.0.to_le_bytes()))
    }

    fn answer(&self) -> Bytes {
        Bytes::new()
    }

    fn state(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.0.to_le_bytes())))
    }

    fn restore(&mut self, state: &mut dyn Read) -> io::Result<()> {
        let mut bytes = [0; 8];
        state.read_exact(&mut bytes)?;
        self.0 = u64::from_le_bytes(bytes);
        Ok(())
    }
}

type Nodes = Vec<(Node, Member, Replica<Counter>)>;

/// Adds a node through the one that leads. A change that may still happen is asked for again: that
/// does what is left of it.
async fn add(
    nodes: &[(Node, Member, Replica<Counter>)],
    id: u64,
    member: &Member,
) -> Result<(), NodeError> {
    let deadline = Instant::now() + PROPOSAL_TIMEOUT;
    let mut ended = NodeError::NotLeader { leader: None };
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(ended);
        }
        let leader = nodes.iter().find(|(node, ..)| node.leads());
        let Some((leader, ..)) = leader else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        match leader.add(id, member.clone(), remaining).await {
            Ok(()) => return Ok(()),
            Err(error @ (NodeError::NotLeader { .. } | NodeError::Unknown)) => ended = error,
            Err(error) => return Err(error),
        }
    }
}

/// Starts the nodes of a cluster, each on a log of its own below `dir`.
async fn start(count: u64, dir: &std::path::Path) -> Result<Nodes, Box<dyn Error>> {
    let mut nodes = Vec::new();
    for id in 1..=count {
        let log = ConsensusLog::open(dir.join(id.to_string()))?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let member = Member {
            raft: listener.local_addr()?.to_string(),
            client: String::new(),
            ..Member::default()
        };
        let (cluster, round_trip) = (ClusterId([1; 16]), Duration::from_millis(10));
        let clock = WallClock::default();
        let options =
            NodeOptions { node: id, cluster, log, listener, security: None, round_trip, clock };
        let counter = Replica::new(Counter(0));
        nodes.push((Node::start(options, &counter)?, member, counter));
    }
    let (leader, member, _) = &nodes[0];
    leader.bootstrap(member.clone()).await?;
    leader.wait_for(PROPOSAL_TIMEOUT, |status| status.leads()).await.ok_or("no election")?;
    for (node, member, _) in &nodes[1..] {
        add(&nodes, node.id(), member).await?;
    }
    Ok(nodes)
}

/// Proposes one command after the other. Returns how long each took.
async fn propose(leader: Arc<Node>, end: Instant) -> Result<Vec<Duration>, NodeError> {
    let command = Command(vec![7; COMMAND_BYTES].into());
    let (mut latencies, mut highest) = (Vec::new(), 0);
    while Instant::now() < end {
        let sent = Instant::now();
        let answer = leader.propose(command.clone(), PROPOSAL_TIMEOUT).await?;
        latencies.push(sent.elapsed());
        let counted = answer.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        assert!(counted > highest, "answers of one proposer rise");
        highest = counted;
    }
    Ok(latencies)
}

fn report(count: u64, mut latencies: Vec<Duration>, took: f64, applied: u64) {
    latencies.sort_unstable();
    let at = |percent: usize| {
        let place = (latencies.len() * percent / 100).min(latencies.len().saturating_sub(1));
        latencies.get(place).map_or(0, Duration::as_micros)
    };
    println!(
        "{{\"bench\":\"raft/propose\",\"params\":{{\"nodes\":{count},\"proposers\":{PROPOSER_TASKS},\
         \"bytes\":{COMMAND_BYTES}}},\"ops\":{},\"seconds\":{took:.3},\"ops_per_s\":{:.0},\"p50_us\":{},\
         \"p99_us\":{},\"verified\":{}}}",
        latencies.len(),
        latencies.len() as f64 / took,
        at(50),
        at(99),
        applied == latencies.len() as u64,
    );
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [count, seconds, dir] = &arguments[..] else {
        return Err("usage: proposers NODES SECONDS DIR".into());
    };
    let (count, seconds) = (count.parse::<u64>()?, seconds.parse()?);
    let mut nodes = start(count, std::path::Path::new(dir)).await?;
    // On a busy machine another node may lead by now.
    let leads = nodes.iter().position(|(node, ..)| node.leads()).ok_or("no node leads")?;
    let (leader, _, counter) = nodes.remove(leads);
    let leader = Arc::new(leader);
    let before = counter.with(|counter| counter.0);
    let end = Instant::now() + Duration::from_secs(seconds);
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..PROPOSER_TASKS {
        let leader = Arc::clone(&leader);
        tasks.push(tokio::spawn(propose(leader, end)));
    }
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    let took = begun.elapsed().as_secs_f64();
    let applied = counter.with(|counter| counter.0) - before;
    report(count, latencies, took, applied);
    for (node, ..) in nodes {
        node.stop()?;
    }
    Arc::into_inner(leader).ok_or("a proposer is left")?.stop()?;
    Ok(())
}
