//! Starting and stopping a node.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use esker_consensus::ConsensusLog;
use openraft::Config;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::error::{InitializeError, RaftError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

use crate::base::failure::{StopCause, TerminalState, to_io_error};
use crate::base::panic_monitor::{PanicMonitor, monitored};
use crate::base::tick_clock::TickClock;
use crate::base::wall_clock::WallClock;
use crate::log_store::LogStore;
use crate::machine_store::{Machine, MachineStore};
use crate::network::handshake::ClusterId;
use crate::network::link::Network;
use crate::network::server::Server;
use crate::network::transport::{Listener, NodeListener, PeerSecurity, TcpTransport, Transport};
use crate::node::Node;
use crate::node::commands::{Commands, Member};
use crate::node::error::NodeError;
use crate::node::joint::end_joint_configurations;
use crate::node::leadership_log::{LeaderSince, report_leadership};
use crate::node::leadership_state::LeadershipState;
use crate::node::node_thread::NodeThread;
use crate::node::proposal_permits::ProposalPermits;
use crate::node::replica::{AnyMachine, NodeRaft, Replica};
use crate::settings::config;

/// The period of openraft's timers, in round trips: a heartbeat is due every two, and one is sent
/// at each tick.
const TICK_ROUND_TRIPS: (u32, u32) = (24, 10);
/// The shortest and the longest round-trip time that is taken: see [`config`].
const ROUND_TRIP_MIN: Duration = Duration::from_millis(1);
const ROUND_TRIP_MAX: Duration = Duration::from_secs(60);
/// The time for which stopping waits for tasks that cannot be cancelled yet.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The options of a node.
#[derive(Debug)]
pub struct NodeOptions {
    /// The number of the node, which no other node of the cluster has or had.
    pub node: u64,
    /// The id of the cluster.
    pub cluster: ClusterId,
    /// The log with Raft's state. Nothing else writes to it.
    pub log: ConsensusLog,
    /// The listener for the connections of other nodes.
    pub listener: TcpListener,
    /// Encrypts and authenticates connections to other nodes, in both directions. `None`: each
    /// caller that reaches the port can take part in the cluster.
    pub security: Option<Arc<dyn PeerSecurity>>,
    /// The round-trip time between nodes, from which all timeouts follow: see
    /// [`config`](crate::config).
    pub round_trip: Duration,
    /// The wall clock, which the node reports to a leader that asks for a proof. Raft uses none.
    pub clock: WallClock,
}

impl Node {
    /// Starts a node from its log. A new one waits until a cluster adds it, or [`Node::bootstrap`]
    /// is called. Blocks while the state is restored.
    ///
    /// # Errors
    /// The errors of [`LogStore::new`], [`MachineStore::new`] and the operating system.
    pub fn start<M: Machine<Commands>>(
        options: NodeOptions,
        machine: &Replica<M>,
    ) -> io::Result<Self> {
        Self::start_any(options, machine.to_any())
    }

    fn start_any(options: NodeOptions, machine: AnyMachine) -> io::Result<Self> {
        let NodeOptions { node, cluster, log, listener, security, round_trip, clock } = options;
        let (ticks, panics) = (tick_clock(round_trip), PanicMonitor::default());
        listener.set_nonblocking(true)?;
        let runtime = start_runtime(&ticks, &panics)?;
        let transport = Arc::new(TcpTransport { security: security.clone() });
        let config = config(round_trip);
        let parts =
            NodeParts { node, cluster, log, transport, config, ticks, panics, clock, machine };
        let started = on_other_thread(|| {
            runtime.block_on(async {
                let port = tokio::net::TcpListener::from_std(listener)?;
                parts.assemble(NodeListener { port, security }).await
            })
        });
        match started.flatten() {
            Ok(node) => {
                *node.thread.lock() = NodeThread::new(runtime);
                Ok(node)
            }
            Err(error) => {
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Returns whether the node belongs to a cluster: it has an entry or a vote.
    ///
    /// # Errors
    /// [`NodeError::Stopped`].
    pub async fn is_initialized(&self) -> Result<bool, NodeError> {
        let is_initialized = self.raft.is_initialized().await;
        is_initialized.map_err(|fatal| self.or_invariant(fatal.into()))
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
            Err(RaftError::Fatal(fatal)) => Err(self.or_invariant(fatal.into())),
        }
    }

    /// Stops the node, and closes its log. Blocks until what was proposed is durable or refused.
    /// Every later call fails with [`NodeError::Stopped`]; stopping again does nothing.
    ///
    /// # Errors
    /// As [`ConsensusLog::close`].
    pub fn stop(&self) -> io::Result<()> {
        let Some(runtime) = self.thread.lock().take() else { return Ok(()) };
        let raft = self.raft.clone();
        // Tasks that continue keep the log open, and the listener keeps the port.
        let stopped = on_other_thread(|| {
            let stopped = runtime.block_on(raft.shutdown());
            runtime.shutdown_timeout(STOP_TIMEOUT);
            stopped
        });
        match stopped {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::warn!("a task of openraft panicked"),
            Err(error) => tracing::warn!(%error, "failed to wait for the tasks of a node"),
        }
        self.log().clone().close().map_err(to_io_error)
    }
}

/// Starts the runtime of a node, with one thread.
fn start_runtime(ticks: &Arc<TickClock>, panics: &PanicMonitor) -> io::Result<Runtime> {
    let (ticks, panics) = (Arc::clone(ticks), panics.clone());
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("esker-raft")
        .on_thread_start(move || {
            ticks.set_for_thread();
            panics.set_for_thread();
        })
        .enable_all()
        .build()
}

/// Runs `work` on another thread, and waits for it: the caller's thread may be in a runtime, which
/// may not block on another one.
fn on_other_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().spawn_scoped(scope, work)?;
        worker.join().map_err(|_| io::Error::other("openraft panicked"))
    })
}

/// The clock of openraft's timers on a node with this round-trip time.
pub(crate) fn tick_clock(round_trip: Duration) -> Arc<TickClock> {
    TickClock::new(
        round_trip.clamp(ROUND_TRIP_MIN, ROUND_TRIP_MAX) * TICK_ROUND_TRIPS.0 / TICK_ROUND_TRIPS.1,
    )
}

/// The parts of a node that is to be started.
pub(crate) struct NodeParts {
    pub(crate) node: u64,
    pub(crate) cluster: ClusterId,
    pub(crate) log: ConsensusLog,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) config: Config,
    pub(crate) ticks: Arc<TickClock>,
    pub(crate) panics: PanicMonitor,
    pub(crate) clock: WallClock,
    pub(crate) machine: AnyMachine,
}

impl NodeParts {
    /// Assembles the parts, and starts the node on the runtime that this is called on.
    pub(crate) async fn assemble(self, listener: impl Listener + 'static) -> io::Result<Node> {
        let Self { node, cluster, log, transport, mut config, ticks, panics, clock, machine } =
            self;
        let terminal = TerminalState::default();
        let machine = MachineStore::with_terminal(log.clone(), machine, terminal.clone())?;
        let log_store = LogStore::with_terminal(log, terminal.clone())?;
        tokio::spawn(monitored("the clock of timers", ticks.run()));
        config.enable_elect = false;
        let config = Arc::new(config.validate().map_err(io::Error::other)?);
        let network = Network::with_transport(transport, cluster, node, terminal.clone());
        let raft = NodeRaft::new(node, config, network.clone(), log_store.clone(), machine).await;
        let raft = raft.map_err(io::Error::other)?;
        let server = Server::with_clock(cluster, raft.clone(), log_store.clone(), clock.clone());
        let contact = server.leader_contact();
        tokio::spawn(stop_after_failure(raft.clone(), terminal, panics));
        let follower = follow_addresses(raft.clone(), network.clone());
        tokio::spawn(monitored("the task that follows addresses", follower));
        let since = LeaderSince::default();
        let reporter = report_leadership(raft.clone(), since.clone());
        tokio::spawn(monitored("the task that reports leadership", reporter));
        let changes = Arc::new(Mutex::new(()));
        let ending = end_joint_configurations(raft.clone(), Arc::clone(&changes));
        tokio::spawn(monitored("the task that ends changes of the members", ending));
        let (votes_from, elector) = (server.votes_from(), raft.clone());
        tokio::spawn(monitored("the task that allows elections", async move {
            tokio::time::sleep_until(votes_from).await;
            elector.runtime_config().elect(true);
        }));
        tokio::spawn(monitored("the listener", server.serve_on(listener)));
        Ok(Node {
            raft,
            log_store,
            network,
            clock,
            leadership: LeadershipState::new(contact, since),
            permits: ProposalPermits::new(),
            changes,
            thread: parking_lot::Mutex::default(),
        })
    }
}

/// Stops a node that has failed, or one of whose tasks has panicked, openraft's included: the node
/// would continue without that task, and may lead. The others end with the node, or when they are
/// done.
async fn stop_after_failure(raft: NodeRaft, terminal: TerminalState, panics: PanicMonitor) {
    let node = *raft.node_id();
    tokio::select! {
        biased;
        task = panics.wait_for_panic() => {
            tracing::error!(node, task, "a task of the node panicked: the node stops");
            terminal.fail(StopCause::Stopped(format!("{task} panicked")));
        }
        () = terminal.wait() => {}
    }
    // Fails if openraft has panicked: then it has stopped.
    let _ = raft.shutdown().await;
}

/// Sets the addresses of the members, committed or not, for the connections to them.
async fn follow_addresses(raft: NodeRaft, network: Network) {
    let mut metrics = raft.server_metrics();
    let mut followed = None;
    loop {
        let membership = metrics.borrow_watched().membership_config.clone();
        if followed.as_ref() != Some(membership.log_id()) {
            for (node, member) in membership.nodes() {
                network.set_address(*node, &member.raft);
            }
            followed = Some(*membership.log_id());
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

    use bytes::Bytes;
    use esker_disk::Op;
    use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::base::failure::Internal;
    use crate::network::transport::IncomingConnection;
    use crate::node::commands::Command;

    pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    /// A machine that does not know this command, and panics at others, which a correct one never
    /// does.
    struct Fragile;

    const UNKNOWN_COMMAND: &[u8] = b"a command of a later build";

    impl Machine<Commands> for Fragile {
        fn apply(&mut self, command: Command) -> io::Result<Bytes> {
            if command.0 == UNKNOWN_COMMAND {
                return Err(io::Error::other("it is not known"));
            }
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
        fn accept(&mut self) -> BoxFuture<'_, io::Result<IncomingConnection>> {
            assert!(!self.panics, "the listener of this test panics");
            Box::pin(std::future::pending())
        }
    }

    /// A node that leads a cluster of itself, on this disk, and its runtime.
    pub(crate) fn alone(disk: &SimDisk) -> (Runtime, Node) {
        let (runtime, node) = started_on(disk, NoConnections { panics: false });
        runtime.block_on(async {
            node.bootstrap(Member::default()).await.unwrap();
            node.wait_for(TEST_TIMEOUT, |status| status.leads()).await.unwrap();
            node.ensure_linearizable(TEST_TIMEOUT).await.unwrap();
        });
        (runtime, node)
    }

    fn started(listener: NoConnections) -> (Runtime, Node) {
        started_on(&SimDisk::new(1), listener)
    }

    fn started_on(disk: &SimDisk, listener: NoConnections) -> (Runtime, Node) {
        let (panics, round_trip) = (PanicMonitor::default(), Duration::from_millis(10));
        let for_threads = panics.clone();
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(1).enable_all();
        let runtime = builder.on_thread_start(move || for_threads.set_for_thread()).build();
        let runtime = runtime.unwrap();
        let disk = Arc::new(disk.clone());
        let parts = NodeParts {
            node: 1,
            cluster: ClusterId([1; 16]),
            log: ConsensusLog::builder("/raft").disk(disk).open().unwrap(),
            transport: Arc::new(TcpTransport::default()),
            config: config(round_trip),
            ticks: tick_clock(round_trip),
            panics,
            clock: WallClock::default(),
            machine: Replica::new(Fragile).to_any(),
        };
        let node = runtime.block_on(parts.assemble(listener)).unwrap();
        (runtime, node)
    }

    /// A node went on without a task that had panicked: without its listener no other node reached
    /// it, and it led all the same.
    #[test]
    fn a_node_stops_when_one_of_its_tasks_panics() {
        let (runtime, node) = started(NoConnections { panics: true });
        let why =
            runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, node.stopped()).await });
        assert_eq!(why.unwrap(), NodeError::Stopped("the listener panicked".into()));
    }

    /// A node that finds a mistake in its code answers nothing any more, and says why.
    #[test]
    fn a_node_stops_when_an_invariant_does_not_hold() {
        let (runtime, node) = started(NoConnections { panics: false });
        let invariant = "the invariant of this test";
        node.terminal().fail(StopCause::Internal(Internal { invariant }));
        // The first cause stays.
        node.terminal().fail(StopCause::Stopped("later".into()));
        let why =
            runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, node.stopped()).await });
        assert_eq!(why.unwrap(), NodeError::Internal { invariant });
        let patience = Duration::from_secs(1);
        assert!(runtime.block_on(node.ensure_linearizable(patience)).is_err());
    }

    /// Proposes a command to a node whose store breaks this invariant at it. In debug builds the
    /// task of the store panics when the failure is recorded.
    fn check_stops_because_of(
        invariant: &'static str,
        (runtime, node): &(Runtime, Node),
        meanwhile: impl Future<Output = ()>,
    ) {
        let (proposed, why) = runtime.block_on(async {
            let command = Command(Bytes::from_static(b"command"));
            let (proposed, ()) = tokio::join!(node.propose(command, TEST_TIMEOUT), meanwhile);
            (proposed, tokio::time::timeout(TEST_TIMEOUT, node.stopped()).await)
        });
        let expected = NodeError::Internal { invariant };
        assert_eq!(proposed, Err(expected.clone()));
        assert_eq!(why.unwrap(), expected);
        let asked = runtime.block_on(node.is_initialized());
        assert_eq!(asked, Err(expected));
    }

    /// The caller of [`Node::stopped`] got the text of an error of openraft: it could not tell a
    /// mistake in the code from a log that failed.
    #[test]
    fn a_broken_invariant_of_the_machine_store_is_the_reason_of_the_stop() {
        let alone = alone(&SimDisk::new(1));
        let (runtime, node) = &alone;
        let claimed = node.raft.with_state_machine(|machine| {
            machine.set_applied_index(u64::MAX);
            Box::pin(std::future::ready(()))
        });
        runtime.block_on(claimed).unwrap();
        let invariant = "entries are applied once, in their order";
        check_stops_because_of(invariant, &alone, std::future::ready(()));
    }

    /// As above, of the callback that the log calls when an append is durable.
    #[test]
    fn a_broken_invariant_of_an_append_is_the_reason_of_the_stop() {
        let disk = SimDisk::new(1);
        let alone = alone(&disk);
        let gate = Gate::new();
        disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())));
        let resolve_early = async {
            alone.1.until_disk_wait().await;
            alone.1.log_store.forget_pending_appends();
            gate.open();
        };
        check_stops_because_of("an append is resolved once", &alone, resolve_early);
    }

    /// A node that skips a command of a later build has another state than those that know it.
    #[test]
    fn a_node_stops_at_a_command_that_its_machine_does_not_know() {
        let (runtime, node) = alone(&SimDisk::new(1));
        let (proposed, why) = runtime.block_on(async {
            let command = Command(Bytes::from_static(UNKNOWN_COMMAND));
            let proposed = node.propose(command, TEST_TIMEOUT).await;
            (proposed, tokio::time::timeout(TEST_TIMEOUT, node.stopped()).await)
        });
        assert!(proposed.is_err());
        let Ok(NodeError::Stopped(why)) = why else { panic!("{why:?}") };
        assert!(why.ends_with("cannot be applied: it is not known"), "{why}");
    }

    #[test]
    fn a_node_stops_when_a_task_of_openraft_panics() {
        let (runtime, node) = started(NoConnections { panics: false });
        let why = runtime.block_on(async {
            node.bootstrap(Member::default()).await.unwrap();
            node.wait_for(TEST_TIMEOUT, |status| status.leads()).await.unwrap();
            let command = Command(Bytes::from_static(b"command"));
            assert!(node.propose(command, TEST_TIMEOUT).await.unwrap_err().may_still_happen());
            tokio::time::timeout(TEST_TIMEOUT, node.stopped()).await
        });
        assert!(why.unwrap().to_string().contains("panicked"));
    }
}
