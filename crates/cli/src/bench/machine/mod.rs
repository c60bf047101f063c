//! The hardware floor: the bare disk and memory.

pub mod command;
pub mod floor;
pub mod raw;
