//! Snapshots of the state machine, beside its log.
//!
//! `stored` finds snapshots that are whole. `create` writes one, `restore` hands one to the state
//! machine with the entries after it, and `retention` drops entries and older snapshots under one.
//! `send` and `receive` ship one to another replica, in the frames of `wire`, each with its disk
//! I/O on a `transfer_thread`.
//!
//! # The crash argument
//!
//! A snapshot is published by one durable step: see [`esker_log::Snapshots::writer`]. Nothing
//! depends on it before. Entries and older snapshots are dropped by a later step, which first reads
//! back the snapshot that covers what it drops. The names of the snapshots that it finds are
//! durable: publishing and opening sync the directory. So a crash at any point leaves either the
//! entries or a whole snapshot of them, and both after most.

pub(crate) mod create;
pub(crate) mod receive;
pub(crate) mod restore;
pub(crate) mod retention;
pub(crate) mod send;
pub(crate) mod stored;
mod transfer_thread;
mod wire;
