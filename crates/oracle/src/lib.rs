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
//! # Sequences
//!
//! [`OracleSequences`] has named series of numbers without a gap or a repeat, for invoices. They
//! are a part of the replicated state, so each answer costs a replicated write, which requests at
//! the same time share. A request that failed is sent again under its key, a timestamp, and gets
//! the numbers that it took, if it did.
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
//! For readers of the source: `timestamp`, `range` and `sequence` are the bottom; `epochs` and
//! `sequences` are the parts of the replicated state, `oracle_state`; `allotment` and `clock` are
//! the rules of an epoch's owner. These are without I/O, threads and clocks. `service` runs them on
//! a node. `history` checks the answers that clients got, and `leader_search` is how clients and
//! nodes find the leader for a change.
#![cfg_attr(not(feature = "service"), allow(rustdoc::broken_intra_doc_links))]

#[cfg(feature = "service")]
mod allotment;
#[cfg(feature = "service")]
mod clock;
#[cfg(feature = "service")]
mod command;
#[cfg(feature = "service")]
mod epochs;
pub mod history;
mod leader_search;
#[cfg(feature = "service")]
mod oracle_state;
mod range;
mod sequence;
#[cfg(feature = "service")]
mod sequences;
#[cfg(feature = "service")]
mod service;
#[cfg(feature = "service")]
mod state_fields;
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
#[cfg(feature = "service")]
pub use oracle_state::OracleState;
pub use range::Range;
pub use sequence::{SEQUENCE_COUNT_MAX, SEQUENCE_NUMBER_MAX, SequenceName, SequenceNameError};
#[cfg(feature = "service")]
pub use sequences::SequenceStatus;
#[cfg(feature = "service")]
pub use service::{
    COUNT_MAX, ClockReport, Oracle, OracleError, OracleOptions, OracleSequences, OracleStats,
    SPAN_TARGET, SequenceError,
};
pub use timestamp::{ParseError, Timestamp, TimestampWidth};
