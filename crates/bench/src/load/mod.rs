//! Callers, readers and disks that a benchmark runs with.
//!
//! `slice` and `threads` need no feature, and `tasks` needs `tasks`. The others are of the log.

#[cfg(feature = "commands")]
pub mod callers;
#[cfg(feature = "commands")]
pub mod durable_times;
#[cfg(feature = "commands")]
pub mod follow;
#[cfg(feature = "commands")]
pub mod follower;
#[cfg(feature = "commands")]
pub mod no_disk;
#[cfg(feature = "commands")]
pub mod open_loop;
pub mod slice;
#[cfg(feature = "commands")]
pub mod tail_readers;
#[cfg(feature = "tasks")]
pub mod tasks;
pub mod threads;
