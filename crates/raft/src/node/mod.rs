//! A whole Raft node: stores, network and openraft, on a thread of its own. Its interface does not
//! name openraft, so that a program above it does not change when openraft does.

mod change;
pub(crate) mod commands;
pub(crate) mod error;
mod joint;
pub(crate) mod leadership;
mod leadership_log;
mod lease;
pub(crate) mod members;
mod proposal_permits;
pub(crate) mod prover;
pub(crate) mod replica;
mod resigned_term;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod transfer;
