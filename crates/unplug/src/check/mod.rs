//! The user's check: one run, and a pool that runs many at once.

pub mod closure;
pub mod command;
pub mod pool;
