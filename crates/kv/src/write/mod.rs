//! Writing: one key, a batch of keys, a range of keys, and keyspaces.

pub(crate) mod batch;
pub(crate) mod catalog;
pub(crate) mod delete_range;
pub(crate) mod keyspace;
pub(crate) mod write_key;
