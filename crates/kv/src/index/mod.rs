//! The index in memory: which record holds the newest value of each key.
//!
//! `arena` holds the entries, in huge pages, `table` finds one by the hash of its key (in `slots`),
//! `order` sorts them, and `keyspace` has the order of each keyspace. `build` makes all of these
//! from sorted keys. `history` keeps the versions that a snapshot may still read.

pub(crate) mod arena;
pub(crate) mod build;
pub(crate) mod history;
pub(crate) mod keys;
pub(crate) mod order;
pub(crate) mod slots;
pub(crate) mod table;
