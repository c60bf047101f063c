//! The command on small programs whose faults are known. Where the system refuses a mount, each
//! test says SKIPPED.

mod answers;
mod baseline;
mod faults;
mod file_operations;
mod library;
mod losable;
mod mapping;
mod marks;
mod processes;
mod recordings;
mod report;
mod servers;
mod support;
