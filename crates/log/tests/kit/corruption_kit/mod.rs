//! What the damage suite stands on: logs with known records, a map of where everything in them
//! stands, and the three answers that are allowed.
//!
//! Whatever is done to the files, the answer is one of three: **whole**, and every value right; a
//! **torn tail** that is cut and told, with no durable record lost; or **damage**, typed, with file
//! and offset. Never a panic, never silent loss, never a record that was not written there.
//!
//! The map is made by `format`, which reads the files as docs/src/format.md describes them and
//! shares no code with the crate: what the two do not agree on is a finding about one of them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]
#![allow(dead_code)] // Each test binary uses its own part.

pub mod answers;
pub mod cases;
pub mod edits;
pub mod format;
pub mod map;
pub mod reading;
pub mod repairs;
pub mod sample;

/// Where the logs live on the simulated disk.
pub const DIR: &str = "/log";
