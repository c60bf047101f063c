//! Starting and stopping a node.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use esker_consensus::ConsensusLog;
use openraft::Config;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::error::{InitializeError, RaftError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Semaphore};

use crate::base::clock::WallClock;
use crate::base::failure::{Failure, failed};
use crate::base::panics::{Panics, noted};
use crate::base::ticks::Ticks;
use crate::log_store::LogStore;
use crate::machine::{Machine, MachineStore};
use crate::network::handshake::ClusterId;
use crate::network::heard::Heard;
use crate::network::link::Network;
use crate::network::server::Server;
use crate::network::transport::{Listener, Tcp, Transport};
use crate::node::bounds::{PROPOSALS, PROPOSED_BYTES};
use crate::node::commands::{Commands, Member};
use crate::node::error::NodeError;
use crate::node::joint::end_joint_configurations;
use crate::node::replica::{AnyMachine, Core, Replica};
use crate::node::report::{Won, report_leadership};
use crate::settings::config;

/// How often openraft looks at its deadlines, in round trips: a heartbeat is due every two, and one
/// is sent at each tick.
const TICK: (u32, u32) = (24, 10);
/// The shortest and the longest round-trip time that is taken: see [`config`].
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(60);
/// How long stopping waits for tasks that are in the middle of something.
const STOP: Duration = Duration::from_secs(1);

/// What a node is started with.
#[derive(Debug)]
pub struct NodeOptions {
    /// Its number, which no other node of the cluster has or had.
    pub node: u64,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Where Raft's state is. Nothing else writes to this log.
    pub log: ConsensusLog,
    /// Where the other nodes reach it.
    pub listener: TcpListener,
    /// The round-trip time between nodes, from which all timeouts follow: see
    /// [`config`](crate::config).
    pub round_trip: Duration,
    /// Its wall clock, which it tells a leader that asks for a proof. Raft itself uses none.
    pub clock: WallClock,
}

/// A node of a replicated state machine: openraft with its stores and network, on a thread of its
/// own. Its methods may be called from any tokio runtime.
///
/// # Elections after a restart
/// For one lease (eight round trips) a node that restarts gives no vote, and does not campaign: a
/// leader may count on a heartbeat that it acknowledged before. The log has the longest lease of
/// its earlier starts, so that a shorter one counts only after that.
pub struct Node {
    pub(crate) raft: Core,
    pub(crate) log: ConsensusLog,
    pub(crate) entries: LogStore<Commands>,
    pub(crate) heard: Heard,
    pub(crate) won: Won,
    pub(crate) network: Network,
    pub(crate) clock: WallClock,
    /// One above the last term in which this node gave its leadership up; 0 for none.
    pub(crate) resigned: AtomicU64,
    /// Held by the transfer that is made.
    pub(crate) transfers: Mutex<()>,
    /// Held by the change of the members that is made.
    pub(crate) changes: Arc<Mutex<()>>,
    /// Permits for proposals, and for their bytes.
    pub(crate) proposals: Arc<Semaphore>,
    pub(crate) bytes: Arc<Semaphore>,
    runtime: parking_lot::Mutex<OwnThread>,
}

/// The runtime of a node. Dropped inside of another one, it does not wait for its tasks: that would
/// block the other.
struct OwnThread(Option<Runtime>);

impl Drop for OwnThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Node {
    /// Starts a node with what its log has. A new one waits until a cluster adds it, or
    /// [`Node::bootstrap`] is called. Blocks while the state is restored.
    ///
    /// # Errors
    /// As [`LogStore::new`] and [`MachineStore::new`]; those of the operating system.
    pub fn start<M: Machine<Commands>>(
        options: NodeOptions,
        machine: &Replica<M>,
    ) -> io::Result<Self> {
        Self::start_erased(options, machine.erased())
    }

    fn start_erased(options: NodeOptions, machine: AnyMachine) -> io::Result<Self> {
        let NodeOptions { node, cluster, log, listener, round_trip, clock } = options;
        let (ticks, panics) = (ticks(round_trip), Panics::default());
        let for_threads = (Arc::clone(&ticks), panics.clone());
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("esker-raft")
            .on_thread_start(move || {
                for_threads.0.on_this_thread();
                for_threads.1.on_this_thread();
            })
            .enable_all()
            .build()?;
        let own = OwnThread(Some(runtime));
        let Some(runtime) = &own.0 else { return Err(io::ErrorKind::Other.into()) };
        listener.set_nonblocking(true)?;
        let (transport, config) = (Arc::new(Tcp), config(round_trip));
        let parts = Parts { node, cluster, log, transport, config, ticks, panics, clock, machine };
        // Not from inside of a runtime, which may be the caller's.
        let started = std::thread::scope(|scope| {
            let start =
                async { parts.assemble(tokio::net::TcpListener::from_std(listener)?).await };
            scope.spawn(|| runtime.block_on(start)).join()
        });
        let started = started.map_err(|_| io::Error::other("openraft panicked at its start"))?;
        Ok(Self { runtime: parking_lot::Mutex::new(own), ..started? })
    }

    /// Whether the node belongs to a cluster: it has an entry or a vote.
    ///
    /// # Errors
    /// [`NodeError::Stopped`].
    pub async fn is_initialized(&self) -> Result<bool, NodeError> {
        Ok(self.raft.is_initialized().await?)
    }

    /// Makes this node the first of a cluster, its only voter. Does nothing if it belongs to one.
    /// It leads a moment later: see [`Node::wait_for`].
    ///
    /// # Durability
    /// When this returns, the founding is durable.
    ///
    /// # Cancel safety
    /// The cluster may have been founded, or be founded a little later, when the future is dropped:
    /// ask [`Node::is_initialized`], or call this again.
    ///
    /// # Errors
    /// [`NodeError::Stopped`]: the cluster may have been founded.
    pub async fn bootstrap(&self, member: Member) -> Result<(), NodeError> {
        let members = BTreeMap::from([(*self.raft.node_id(), member)]);
        match self.raft.initialize(members).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(RaftError::APIError(error)) => Err(NodeError::Membership(error.to_string())),
            Err(RaftError::Fatal(fatal)) => Err(fatal.into()),
        }
    }

    /// The node's log.
    pub fn log(&self) -> &ConsensusLog {
        &self.log
    }

    /// The node's wall clock.
    pub fn clock(&self) -> &WallClock {
        &self.clock
    }

    /// Stops the node, and closes its log. Blocks until what was proposed is durable or refused.
    /// Every later call fails with [`NodeError::Stopped`]; stopping again does nothing.
    ///
    /// # Errors
    /// Those of [`ConsensusLog::close`].
    pub fn stop(&self) -> io::Result<()> {
        let Some(runtime) = self.runtime.lock().0.take() else { return Ok(()) };
        let raft = self.raft.clone();
        // Not from inside of a runtime, which may be the caller's. Connections have handles of the
        // log, and the listener has the port.
        let stopped = std::thread::scope(|scope| {
            let stop = || {
                let stopped = runtime.block_on(raft.shutdown());
                runtime.shutdown_timeout(STOP);
                stopped
            };
            scope.spawn(stop).join()
        });
        if !matches!(stopped, Ok(Ok(()))) {
            tracing::warn!("a task of openraft panicked");
        }
        self.log.clone().close().map_err(failed)
    }
}

/// The clock of openraft's timers on a node with this round-trip time.
pub(crate) fn ticks(round_trip: Duration) -> Arc<Ticks> {
    Ticks::new(round_trip.clamp(SHORTEST, LONGEST) * TICK.0 / TICK.1)
}

/// What a node is made of.
pub(crate) struct Parts {
    pub(crate) node: u64,
    pub(crate) cluster: ClusterId,
    pub(crate) log: ConsensusLog,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) config: Config,
    pub(crate) ticks: Arc<Ticks>,
    pub(crate) panics: Panics,
    pub(crate) clock: WallClock,
    pub(crate) machine: AnyMachine,
}

impl Parts {
    /// Starts them on the runtime that this is called on.
    pub(crate) async fn assemble(self, listener: impl Listener + 'static) -> io::Result<Node> {
        let Self { node, cluster, log, transport, mut config, ticks, panics, clock, machine } =
            self;
        let machine = MachineStore::new(log.clone(), machine)?;
        let entries = LogStore::new(log.clone())?;
        tokio::spawn(noted("the clock of timers", ticks.run()));
        config.enable_elect = false;
        let config = Arc::new(config.validate().map_err(io::Error::other)?);
        let network = Network::over(transport, cluster, node);
        let raft = Core::new(node, config, network.clone(), entries.clone(), machine).await;
        let raft = raft.map_err(io::Error::other)?;
        let server = Server::with_clock(cluster, raft.clone(), entries.clone(), clock.clone());
        let heard = server.heard();
        tokio::spawn(stop_after_panic(raft.clone(), entries.clone(), panics));
        let follower = follow_addresses(raft.clone(), network.clone());
        tokio::spawn(noted("the task that follows addresses", follower));
        let won = Won::default();
        let reporter = report_leadership(raft.clone(), Arc::clone(&won));
        tokio::spawn(noted("the task that reports leadership", reporter));
        let changes = Arc::new(Mutex::new(()));
        let ending = end_joint_configurations(raft.clone(), Arc::clone(&changes));
        tokio::spawn(noted("the task that ends changes of the members", ending));
        let (votes_from, elector) = (server.votes_from(), raft.clone());
        tokio::spawn(noted("the task that allows elections", async move {
            tokio::time::sleep_until(votes_from).await;
            elector.runtime_config().elect(true);
        }));
        tokio::spawn(noted("the listener", server.serve_on(listener)));
        Ok(Node {
            raft,
            log,
            entries,
            heard,
            won,
            network,
            clock,
            resigned: AtomicU64::new(0),
            transfers: Mutex::new(()),
            changes,
            proposals: Arc::new(Semaphore::new(PROPOSALS)),
            bytes: Arc::new(Semaphore::new(PROPOSED_BYTES)),
            runtime: parking_lot::Mutex::new(OwnThread(None)),
        })
    }
}

/// Stops a node when one of its tasks has panicked, openraft's included: it would go on without
/// that, and may lead. The others end with the node, or when they are done.
async fn stop_after_panic(raft: Core, entries: LogStore<Commands>, panics: Panics) {
    let task = panics.first().await;
    tracing::error!(node = *raft.node_id(), task, "a task of the node panicked: the node stops");
    // The first is the reason.
    let _ = entries.failure().set(Failure::Stopped(format!("{task} panicked")));
    // Fails if openraft has panicked: then it has stopped.
    let _ = raft.shutdown().await;
}

/// Nodes that move are reached where the members say, committed or not.
async fn follow_addresses(raft: Core, network: Network) {
    let mut metrics = raft.server_metrics();
    let mut seen = None;
    loop {
        let membership = metrics.borrow_watched().membership_config.clone();
        if seen.as_ref() != Some(membership.log_id()) {
            for (node, member) in membership.nodes() {
                network.moved(*node, &member.raft);
            }
            seen = Some(*membership.log_id());
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::io::Read;
    use std::net::IpAddr;

    use bytes::Bytes;
    use esker_disk::sim::SimDisk;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::network::transport::Connection;
    use crate::node::commands::Command;

    pub(crate) const LONG: Duration = Duration::from_secs(60);

    /// A machine that panics at a command, which a correct one never does.
    struct Fragile;

    impl Machine<Commands> for Fragile {
        fn apply(&mut self, _command: Command) -> Bytes {
            panic!("the machine of this test panics")
        }

        fn answer(&self) -> Bytes {
            Bytes::new()
        }

        fn state(&self) -> io::Result<Box<dyn Read + Send>> {
            Ok(Box::new(io::empty()))
        }

        fn restore(&mut self, _state: &mut dyn Read) -> io::Result<()> {
            Ok(())
        }
    }

    /// A listener that accepts nothing, or panics.
    #[derive(Debug)]
    struct NoConnections {
        panics: bool,
    }

    impl Listener for NoConnections {
        fn accept(&mut self) -> BoxFuture<'_, io::Result<(Connection, Option<IpAddr>)>> {
            assert!(!self.panics, "the listener of this test panics");
            Box::pin(std::future::pending())
        }
    }

    /// A node that leads a cluster of itself, on this disk, and its runtime.
    pub(crate) fn alone(disk: &SimDisk) -> (Runtime, Node) {
        let (runtime, node) = started_on(disk, NoConnections { panics: false });
        runtime.block_on(async {
            node.bootstrap(Member::default()).await.unwrap();
            node.wait_for(LONG, |status| status.leads()).await.unwrap();
            node.prove_leadership(LONG).await.unwrap();
        });
        (runtime, node)
    }

    fn started(listener: NoConnections) -> (Runtime, Node) {
        started_on(&SimDisk::new(1), listener)
    }

    fn started_on(disk: &SimDisk, listener: NoConnections) -> (Runtime, Node) {
        let (panics, round_trip) = (Panics::default(), Duration::from_millis(10));
        let for_threads = panics.clone();
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(1).enable_all();
        let runtime = builder.on_thread_start(move || for_threads.on_this_thread()).build();
        let runtime = runtime.unwrap();
        let disk = Arc::new(disk.clone());
        let parts = Parts {
            node: 1,
            cluster: ClusterId([1; 16]),
            log: ConsensusLog::builder("/raft").disk(disk).open().unwrap(),
            transport: Arc::new(Tcp),
            config: config(round_trip),
            ticks: ticks(round_trip),
            panics,
            clock: WallClock::default(),
            machine: Replica::new(Fragile).erased(),
        };
        let node = runtime.block_on(parts.assemble(listener)).unwrap();
        (runtime, node)
    }

    /// A node went on without a task that had panicked: without its listener no other node reached
    /// it, and it led all the same.
    #[test]
    fn a_node_stops_when_one_of_its_tasks_panics() {
        let (runtime, node) = started(NoConnections { panics: true });
        let why = runtime.block_on(async { tokio::time::timeout(LONG, node.stopped()).await });
        assert_eq!(why.unwrap(), NodeError::Stopped("the listener panicked".into()));
    }

    #[test]
    fn a_node_stops_when_a_task_of_openraft_panics() {
        let (runtime, node) = started(NoConnections { panics: false });
        let why = runtime.block_on(async {
            node.bootstrap(Member::default()).await.unwrap();
            node.wait_for(LONG, |status| status.leads()).await.unwrap();
            let command = Command(Bytes::from_static(b"command"));
            assert!(node.propose(command, LONG).await.unwrap_err().may_still_happen());
            tokio::time::timeout(LONG, node.stopped()).await
        });
        assert!(why.unwrap().to_string().contains("panicked"));
    }
}
