//! Ballots, page numbers, waking tasks, waiting for futures, and the primitives that the model
//! checker replaces.

pub(crate) mod ballot;
pub(crate) mod blocking;
pub(crate) mod slot;
pub(crate) mod sync;
pub(crate) mod wake;
