//! The corruption kit: logs with known records, a map of what every byte of their files means, and
//! the three outcomes that are allowed.
//!
//! Whatever is done to the files, the outcome is one of three: **whole**, and every value is right;
//! a **torn tail** that is cut and reported, with no durable record lost; or **corruption**, typed,
//! with file and offset. Never a panic, never silent loss, never a record that was not written
//! there.
//!
//! `format` makes the map. It reads the files as docs/src/format.md describes them and shares no
//! code with the crate: where the two disagree, one of them is wrong.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]
#![allow(dead_code)] // Each test binary uses its own part.

pub mod cases;
pub mod edits;
pub mod format;
pub mod map;
pub mod outcomes;
pub mod reading;
pub mod repairs;
pub mod sample;

/// Where the logs live on the simulated disk.
pub const DIR: &str = "/log";
