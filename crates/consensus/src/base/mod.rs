//! Ballots, the numbering of pages, and what the model checker replaces.

pub(crate) mod ballot;
pub(crate) mod slot;
pub(crate) mod sync;
