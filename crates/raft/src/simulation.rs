//! Nodes of a simulation: on one thread, in virtual time, over a network that the program gives.
//!
//! Each process has a tokio runtime of its own, on the same thread, with a paused clock:
//!
//! - **Time** is the clock of that runtime, for timers, leases and the time since the start. A
//!   program moves it, for each process at a rate of its own.
//! - **Chance** is a generator that each process has, from a seed.
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

use crate::base::clock::WallClock;
use crate::base::panics::Panics;
use crate::base::surroundings::simulated::Surroundings;
use crate::base::ticks::Ticks;
use crate::machine::Machine;
use crate::network::handshake::ClusterId;
pub use crate::network::transport::{Connection, Listener, Stream, Transport};
use crate::node::commands::Commands;
use crate::node::replica::Replica;
use crate::node::start::{Node, Parts, ticks};
use crate::settings::config;

/// What a node of a simulation is started with. See [`NodeOptions`](crate::NodeOptions).
#[derive(Debug)]
pub struct SimulatedOptions<L> {
    /// Its number.
    pub node: u64,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Where Raft's state is.
    pub log: ConsensusLog,
    /// Opens connections to other nodes.
    pub transport: Arc<dyn Transport>,
    /// Takes connections of other nodes.
    pub listener: L,
    /// Its wall clock.
    pub clock: WallClock,
    /// Entries between two snapshots, and entries that are kept before the newest.
    pub snapshots: (u64, u64),
}

/// A process with one node.
#[derive(Clone)]
pub struct Process {
    surroundings: Surroundings,
    ticks: Arc<Ticks>,
    round_trip: Duration,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("round_trip", &self.round_trip).finish_non_exhaustive()
    }
}

/// The thread is in a process, until this is dropped.
#[derive(Debug)]
#[must_use = "the thread is in the process only while this is there"]
pub struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        Surroundings::on_this_thread(None);
        Ticks::replace_on_this_thread(None);
    }
}

impl Process {
    /// A process whose chance has this seed, and whose node has this round-trip time. Called on its
    /// runtime.
    pub fn new(seed: u64, round_trip: Duration) -> Self {
        let surroundings = Surroundings::new(seed, Instant::now());
        Self { surroundings, ticks: ticks(round_trip), round_trip }
    }

    /// What runs on this thread from now on is in the process. Before each use of its runtime.
    pub fn enter(&self) -> Entered {
        Surroundings::on_this_thread(Some(&self.surroundings));
        Ticks::replace_on_this_thread(Some(&self.ticks));
        Entered(())
    }

    /// Starts its node, on the runtime that this is called on.
    ///
    /// # Errors
    /// As [`Node::start`].
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
        let (ticks, machine) = (Arc::clone(&self.ticks), machine.erased());
        // A panic ends the simulation.
        let panics = Panics::default();
        let parts = Parts { node, cluster, log, transport, config, ticks, panics, clock, machine };
        parts.assemble(listener).await
    }
}
