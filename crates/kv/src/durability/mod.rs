//! Opening, checkpoints of the index, cleaning and closing. `bursts` paces what runs in the
//! background.

pub(crate) mod bursts;
pub(crate) mod checkpoint;
pub(crate) mod clean;
pub(crate) mod close;
pub(crate) mod open;
mod replay;
