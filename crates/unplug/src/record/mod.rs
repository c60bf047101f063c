//! Recordings: the operations of a program, its output, and where it said what.

pub mod operation;
pub mod recording;
