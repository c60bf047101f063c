//! The user's check: one run, and a pool that runs many at once.

pub mod command;
pub mod pool;
