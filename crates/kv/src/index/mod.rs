//! The index in memory: which record holds the newest value of each key.
//!
//! `arena` holds the entries (`entry`) in huge pages, `table` finds one by the hash of its key (in
//! `slots`), and `sorted_keys` sorts them in leaves (`leaf`). `keyspace_keys` has the keys of each
//! keyspace. `build` makes all of these from sorted keys. `history` keeps the versions that a
//! snapshot may still read.

pub(crate) mod arena;
pub(crate) mod build;
pub(crate) mod entry;
pub(crate) mod history;
pub(crate) mod keyspace_keys;
mod leaf;
pub(crate) mod slots;
pub(crate) mod sorted_keys;
pub(crate) mod table;
