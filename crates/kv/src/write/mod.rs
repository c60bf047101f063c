//! Writing: one key, a batch of keys, a range of keys, and keyspaces.
//!
//! [`driver`] runs every write, blocking or as a future. `index_update` changes the index once a
//! record has its place.

pub(crate) mod batch;
pub(crate) mod catalog;
mod delete_range;
mod driver;
mod index_update;
pub(crate) mod keyspace;
mod scratch;
mod write_batch;
mod write_key;
