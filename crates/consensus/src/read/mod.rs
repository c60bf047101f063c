//! Reading: single slots, iteration, the frontier, statistics, and inspection without opening the
//! log.

pub(crate) mod inspect;
pub(crate) mod iterate;
pub(crate) mod lookup;
pub(crate) mod progress;
mod record_totals;
pub(crate) mod slot_values;
mod slot_windows;
pub(crate) mod stats;
pub(crate) mod uncommitted;
pub(crate) mod watch;
