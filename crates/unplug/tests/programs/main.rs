//! The command on small programs whose faults are known. Where the system refuses a mount, each
//! test says SKIPPED.

mod answers;
mod baseline;
mod file_operations;
mod library;
mod report;
mod support;
