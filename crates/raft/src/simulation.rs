//! Nodes of a simulation: on one thread, in virtual time, over a network that the program gives.
//!
//! Each process has a tokio runtime of its own, on the same thread, with a paused clock:
//!
//! - **Time** is the clock of that runtime, for timers, leases and the time since the start. A
//!   program moves it, for each process at a rate of its own.
//! - **Random numbers** come from a generator that each process has, from a seed.
//! - **The network** is a [`Transport`] and a [`Listener`].
//! - **The disk** is that of the log. With [`Engine::manual`](esker_log::Engine::manual) nothing is
//!   durable before the program runs the engine, and there are no other threads.
//!
//! A process ends when its runtime, its [`Node`] and its log are dropped.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use esker_consensus::ConsensusLog;
use openraft::SnapshotPolicy;
use tokio::time::Instant;

use crate::base::environment::simulated::Environment;
use crate::base::panic_monitor::PanicMonitor;
use crate::base::tick_clock::TickClock;
use crate::base::wall_clock::WallClock;
use crate::machine_store::Machine;
use crate::network::handshake::ClusterId;
pub use crate::network::transport::{
    Connection, IncomingConnection, Listener, SecuredConnection, Stream, Transport,
};
use crate::node::Node;
use crate::node::commands::Commands;
use crate::node::replica::Replica;
use crate::node::start::{NodeParts, tick_clock};
use crate::settings::config;

/// The options of a node of a simulation. See [`NodeOptions`](crate::NodeOptions).
#[derive(Debug)]
pub struct SimulatedOptions<L> {
    /// The number of the node.
    pub node: u64,
    /// The id of the cluster.
    pub cluster: ClusterId,
    /// The log with Raft's state.
    pub log: ConsensusLog,
    /// Opens connections to other nodes.
    pub transport: Arc<dyn Transport>,
    /// Takes connections of other nodes.
    pub listener: L,
    /// The wall clock of the node.
    pub clock: WallClock,
    /// Entries between two snapshots, and entries that are kept before the newest.
    pub snapshots: (u64, u64),
}

/// A process with one node.
#[derive(Clone)]
pub struct Process {
    environment: Environment,
    ticks: Arc<TickClock>,
    round_trip: Duration,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("round_trip", &self.round_trip).finish_non_exhaustive()
    }
}

/// A guard: the thread is in a process until this is dropped.
#[derive(Debug)]
#[must_use = "the thread is in the process only while this is there"]
pub struct ProcessGuard(());

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        Environment::set_for_thread(None);
        TickClock::replace_for_thread(None);
    }
}

impl Process {
    /// Creates a process whose random numbers have this seed, and whose node has this round-trip
    /// time. Called on its runtime.
    pub fn new(seed: u64, round_trip: Duration) -> Self {
        let environment = Environment::new(seed, Instant::now());
        Self { environment, ticks: tick_clock(round_trip), round_trip }
    }

    /// Enters the process with this thread. Called before each use of its runtime.
    pub fn enter(&self) -> ProcessGuard {
        Environment::set_for_thread(Some(&self.environment));
        TickClock::replace_for_thread(Some(&self.ticks));
        ProcessGuard(())
    }

    /// Starts the node, on the runtime that this is called on.
    ///
    /// # Errors
    /// The errors of [`Node::start`].
    pub async fn start<M: Machine<Commands>>(
        &self,
        options: SimulatedOptions<impl Listener + 'static>,
        machine: &Replica<M>,
    ) -> io::Result<Node> {
        let SimulatedOptions { node, cluster, log, transport, listener, clock, snapshots } =
            options;
        let mut config = config(self.round_trip);
        config.snapshot_policy = SnapshotPolicy::LogsSinceLast(snapshots.0);
        config.max_in_snapshot_log_to_keep = snapshots.1;
        let (ticks, machine) = (Arc::clone(&self.ticks), machine.to_any());
        // A panic ends the simulation.
        let panics = PanicMonitor::default();
        let parts =
            NodeParts { node, cluster, log, transport, config, ticks, panics, clock, machine };
        parts.assemble(listener).await
    }
}
