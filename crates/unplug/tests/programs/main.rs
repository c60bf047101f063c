//! The command on small programs whose faults are known. Where the system refuses a mount, each
//! test says SKIPPED.

#![allow(clippy::expect_used, clippy::print_stdout)]

mod answers;
mod baseline;
mod faults;
mod file_operations;
mod file_systems;
mod library;
mod losable;
mod mapping;
mod marks;
mod processes;
mod recordings;
mod report;
mod servers;
mod support;
