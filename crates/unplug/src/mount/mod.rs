//! The mount that records: its tree in memory, the recorder, and the file system for the kernel.

mod attributes;
mod content;
mod durable_lines;
pub mod filesystem;
pub mod namespace;
pub mod recorder;
pub mod recording_mount;
pub mod tree;
