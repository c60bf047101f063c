//! A whole Raft node: stores, network and openraft, on a thread of its own. Its interface does not
//! name openraft, so that a program above it does not change when openraft does.

mod bounds;
mod change;
pub(crate) mod commands;
pub(crate) mod error;
mod joint;
pub(crate) mod lead;
mod lease;
pub(crate) mod members;
pub(crate) mod prover;
pub(crate) mod replica;
mod report;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod transfer;
