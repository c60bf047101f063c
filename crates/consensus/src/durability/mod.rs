//! Opening, checkpoints, reclaiming space, closing.

pub(crate) mod checkpoint;
pub(crate) mod close;
pub(crate) mod reclaim;
pub(crate) mod recovery;
