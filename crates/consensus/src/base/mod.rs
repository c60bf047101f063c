//! Ballots, page numbers, waking tasks, and the primitives that the model checker replaces.

pub(crate) mod ballot;
pub(crate) mod slot;
pub(crate) mod sync;
pub(crate) mod wake;
