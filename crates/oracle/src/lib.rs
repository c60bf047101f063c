//! Hybrid timestamps that are unique and ordered for the life of a cluster.
//!
//! A [`Timestamp`] is an epoch, in nanoseconds of Unix time, and an index within it. The cluster
//! agrees on the last epoch and on its owner; the owner alone hands out the indexes of it, from
//! its memory, without a replicated write for each.
//!
//! # Why no timestamp is issued twice
//!
//! - An epoch rises with each command, whatever the clock of its proposer says ([`Epochs`]).
//! - It belongs to one process in one term: an [`Owner`] names the term, the node, and the session
//!   of the node's log, which no other process has. So a node that leads, loses its leadership and
//!   leads again, or that restarts, owns none of its earlier epochs.
//! - An owner hands out each index once, and only while it is proven to lead in that term
//!   ([`Allotment`]).
//!
//! # Clocks
//!
//! Epochs follow the wall clock of the leader, as far as that can be believed: see [`follow`].
//!
//! # Source
//!
//! For readers of the source: `timestamp` is the bottom; `epochs` is the replicated state;
//! `allotment` and `clock` are what its owner does. These are without I/O, threads and clocks.
//! `service` runs them on a node. `history` checks what clients got.

mod allotment;
mod clock;
mod epochs;
pub mod history;
mod service;
mod timestamp;

pub use allotment::{Allotment, Range};
pub use clock::{Followed, Reference, Step, follow};
pub use epochs::{Advance, Epochs, LeaseReads, Owner};
pub use service::{COUNT_MAX, Oracle, OracleError, OracleOptions, OracleStats, WallClock};
pub use timestamp::{ParseError, Timestamp};
