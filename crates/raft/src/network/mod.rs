//! The network between nodes: TCP, one connection for the calls of one node to another, and one
//! for each snapshot.
//!
//! # On the wire
//!
//! Numbers are little-endian. A connection begins with a handshake of each side; the node that
//! opened it calls, and the other answers.
//!
//! ```text
//! handshake  0 magic "ESKRAFT1" (8) | 8 version u16 | 10 purpose or answer u8 | 11 zero (1)
//!           12 cluster (16) | 28 node that connects u64 | 36 node that is connected to u64
//!           44 crc32c of what precedes u32
//! frame     0 length of what follows u32 | 4 crc32c of what follows u32 | 8 call u64 | 16 content
//! ```
//!
//! The content is a `Request` or an `Answer`, as postcard encodes them. Calls are answered in any
//! order. A frame that cannot be read ends the connection: nothing after it can be trusted. A
//! connection for proofs of leadership has no frames: see `proof`.
//!
//! # Bounds
//!
//! A frame has 65 MiB at most, and a connection 256 calls without an answer. A connection with more
//! is not read, so that the sender waits. A server has eight connections of each member, and eight
//! of all other callers: see `connection_slots`.
//!
//! # Trust
//!
//! With [`PeerSecurity`](transport::PeerSecurity), which encrypts and authenticates, a caller has
//! the number that it proves. Without it peers are not authenticated: the id of the cluster
//! protects clusters that were mixed up, and the number of a caller is compared with the members
//! (see `callers`); both are no secrets.

mod address;
mod append_queue;
mod callers;
pub(crate) mod connect;
mod connection_slots;
mod failure_log;
mod fixed_fields;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod leader_contact;
pub(crate) mod lease_acks;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod peer;
pub(crate) mod proof;
pub(crate) mod proof_link;
pub(crate) mod reversion;
pub(crate) mod server;
mod timeouts;
pub(crate) mod transport;
