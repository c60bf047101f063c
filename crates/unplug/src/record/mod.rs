//! Recordings: the operations of a program and its output, in one order.

pub mod file;
pub mod operation;
pub mod payload;
pub mod recording;
mod validation;
