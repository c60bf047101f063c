//! Opening, checkpoints, reclaiming space, and closing. `maintenance` is what operators call.

pub(crate) mod checkpoint;
pub(crate) mod close;
pub(crate) mod load_values;
pub(crate) mod maintenance;
pub(crate) mod metadata;
pub(crate) mod reclaim;
pub(crate) mod recovery;
