//! The machine: what it is, and its hardware floor, the bare disk and memory.

pub mod command;
pub mod environment;
pub mod floor;
pub mod random_read;
pub mod raw;
