//! Types, votes as ballots, the encoding of entries, errors, and openraft's runtime.

pub(crate) mod ballots;
pub(crate) mod blocking;
pub(crate) mod boot_instant;
pub(crate) mod encoding;
pub(crate) mod environment;
pub(crate) mod failure;
#[cfg(feature = "simulation")]
pub(crate) mod ordered_watch;
pub(crate) mod panic_monitor;
pub(crate) mod pending_appends;
pub(crate) mod runtime;
pub(crate) mod storage_cause;
pub(crate) mod tick_clock;
pub(crate) mod type_config;
pub(crate) mod wall_clock;
