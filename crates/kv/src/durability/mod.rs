//! Opening, cleaning and closing.

pub(crate) mod bursts;
pub(crate) mod checkpoint;
pub(crate) mod clean;
pub(crate) mod close;
pub(crate) mod open;
mod replay;
