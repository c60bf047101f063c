//! What the stores share: types, the mapping of votes, the encoding of entries, and errors.

pub(crate) mod ballots;
pub(crate) mod blocking;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod encoding;
pub(crate) mod failure;
pub(crate) mod instant;
pub(crate) mod panics;
pub(crate) mod runtime;
pub(crate) mod surroundings;
pub(crate) mod ticks;
pub(crate) mod unresolved;
#[cfg(feature = "simulation")]
pub(crate) mod watch;
