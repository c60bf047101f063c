//! Callers, readers and disks that a benchmark runs with.

pub mod callers;
pub mod durable_times;
pub mod follow;
pub mod follower;
pub mod no_disk;
pub mod open_loop;
pub mod tail_readers;
