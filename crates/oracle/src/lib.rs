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
//! Epochs follow the wall clock of the leader, as far as it can be believed: see [`follow`].
//!
//! # Features
//!
//! `service`, by default: the replicated state and [`Oracle`]. Without it there is only what
//! clients need, and no dependency.
//!
//! # Source
//!
//! For readers of the source: `timestamp` and `range` are the bottom; `epochs` is the replicated
//! state; `allotment` and `clock` are the rules of its owner. These are without I/O, threads and
//! clocks. `service` runs them on a node. `history` checks the answers that clients got, and
//! `leader_search` is how clients and nodes find the leader for a change.
#![cfg_attr(not(feature = "service"), allow(rustdoc::broken_intra_doc_links))]

#[cfg(feature = "service")]
mod allotment;
#[cfg(feature = "service")]
mod clock;
#[cfg(feature = "service")]
mod epochs;
pub mod history;
mod leader_search;
mod range;
#[cfg(feature = "service")]
mod service;
mod timestamp;

#[cfg(feature = "service")]
pub use allotment::Allotment;
#[cfg(feature = "service")]
pub use clock::{
    CLOCK_LEAP_MAX, CREDIBLE_CLOCKS, EpochProposal, Reference, Step, agree, follow, follow_at_once,
};
#[cfg(feature = "service")]
pub use epochs::{Advance, Epochs, LeaseReads, Owner};
#[cfg(feature = "service")]
pub use esker_raft::Bytes;
pub use leader_search::LeaderSearch;
pub use range::Range;
#[cfg(feature = "service")]
pub use service::{
    COUNT_MAX, ClockReport, Oracle, OracleError, OracleOptions, OracleStats, SPAN_TARGET,
};
pub use timestamp::{ParseError, Timestamp, TimestampWidth};
