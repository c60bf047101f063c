//! Raft on Esker: [openraft]'s log, votes, state machine and snapshots in a consensus log.
//!
//! [`LogStore`] is a durable log store for any openraft application whose node ids and terms are
//! `u64` and that uses openraft's own entries with the standard leader id: one leader in a term.
//! [`MachineStore`] drives a state machine, and keeps its snapshots beside the log.
//!
//! A batch of entries is durable with one sync, and batches are pipelined: an entry is readable
//! when `append` returns, and openraft is notified when it is durable.
//!
//! # How Raft's state is stored
//!
//! | Raft | consensus log |
//! |---|---|
//! | entry at an index | value in the slot of that number, under the current vote's ballot |
//! | vote of a term and node | ballot: number `2 * term`, plus 1 if it is committed, and the node |
//! | commit index | frontier; its markers request no sync |
//! | last purged log id, longest lease | application state, stored with the floor or alone |
//! | snapshot | snapshot at the slot of its last entry |
//!
//! Ballots are ordered as votes are, so the log itself refuses a vote that is lower than one that
//! it gave, and an entry of a deposed leader.
//!
//! # A whole node
//!
//! [`Network`] and [`Server`] connect nodes over TCP. [`Node`] puts stores, network and openraft
//! together, on a thread of its own: a replicated state machine of byte commands, whose interface
//! does not name openraft. With the feature `simulation`, nodes run on one thread, in virtual time.
//!
//! `examples/counter.rs` uses the stores with openraft, and `examples/proposers.rs` nodes.
//!
//! # Source
//!
//! For readers of the source: `base` has votes as ballots, the encoding of entries, and errors;
//! `log_store` and `machine_store` are independent of each other. `network` is the connections
//! between nodes: `link` calls, `server` answers. `node` is on top.

mod base;
mod log_store;
mod machine_store;
mod network;
mod node;
mod settings;
#[cfg(feature = "simulation")]
pub mod simulation;

/// The examples of the book, compiled and run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/raft.md")]
struct Book;

pub use base::type_config::StoredConfig;
pub use base::wall_clock::WallClock;
pub use bytes::Bytes;
pub use esker_consensus::{ConsensusLog, Snapshot};
pub use log_store::LogStore;
pub use machine_store::{Machine, MachineSnapshotBuilder, MachineStore};
pub use network::connect::connect;
pub use network::handshake::ClusterId;
pub use network::link::{Link, Network, RaftAddress};
pub use network::server::Server;
pub use network::transport::{Connection, PeerSecurity, SecuredConnection, Stream};
pub use node::Node;
pub use node::commands::{Command, Commands, Member};
pub use node::error::NodeError;
pub use node::prover::{Prover, VoterClocks};
pub use node::replica::Replica;
pub use node::start::NodeOptions;
pub use node::status::{Role, Status};
pub use openraft;
pub use settings::config;
