//! The benchmarks of the log.

pub mod append;
pub mod build;
pub mod catchup;
pub mod fanout;
pub mod offsets;
pub mod open;
pub mod plan;
