//! A whole Raft node: stores, network and openraft, on a thread of its own. Its interface does not
//! name openraft, so that a program above it does not change when openraft does.

mod change;
pub(crate) mod commands;
pub(crate) mod error;
mod follower_waits;
mod joint;
mod leadership;
mod leadership_log;
mod leadership_state;
mod lease;
mod members;
mod node_thread;
mod proposal_permits;
pub(crate) mod prover;
pub(crate) mod replica;
mod resigned_term;
pub(crate) mod start;
pub(crate) mod status;
mod transfer;

use std::fmt;
use std::sync::Arc;

use esker_consensus::ConsensusLog;
use parking_lot::Mutex;

use crate::base::failure::{Internal, TerminalState};
use crate::base::wall_clock::WallClock;
use crate::log_store::LogStore;
use crate::network::link::Network;
use crate::node::commands::Commands;
use crate::node::error::NodeError;
use crate::node::leadership_state::LeadershipState;
use crate::node::node_thread::NodeThread;
use crate::node::proposal_permits::ProposalPermits;
use crate::node::replica::NodeRaft;

/// A node of a replicated state machine: openraft with its stores and network, on a thread of its
/// own. Its methods may be called from any tokio runtime.
///
/// # Elections after a restart
/// For one lease (eight round trips) a node that restarts gives no vote, and does not campaign: a
/// leader may count on a heartbeat that it acknowledged before. The log has the longest lease of
/// its earlier starts, so that a shorter one counts only after that.
pub struct Node {
    raft: NodeRaft,
    log_store: LogStore<Commands>,
    network: Network,
    clock: WallClock,
    leadership: LeadershipState,
    permits: ProposalPermits,
    /// Held by the change of the members that is made.
    changes: Arc<tokio::sync::Mutex<()>>,
    thread: Mutex<NodeThread>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Node {
    /// The node's log.
    pub fn log(&self) -> &ConsensusLog {
        self.log_store.log()
    }

    /// The node's wall clock.
    pub fn clock(&self) -> &WallClock {
        &self.clock
    }

    fn terminal(&self) -> &TerminalState {
        self.log_store.terminal()
    }

    /// Fails the node for good, because an invariant does not hold.
    fn fail(&self, internal: Internal) -> NodeError {
        self.terminal().fail_internal(internal).into()
    }

    /// Returns the broken invariant in place of the error of a node that has stopped because of
    /// it: openraft says that a store failed, or that it has stopped.
    fn or_invariant(&self, error: NodeError) -> NodeError {
        match (&error, self.terminal().internal()) {
            (NodeError::Stopped(_), Some(internal)) => internal.into(),
            _ => error,
        }
    }
}
