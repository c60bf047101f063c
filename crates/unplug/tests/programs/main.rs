//! The command on small programs whose faults are known. Where the system refuses a mount, each
//! test says SKIPPED.

mod answers;
mod faults;
mod file_operations;
mod losable;
mod mapping;
mod marks;
mod processes;
mod recordings;
mod servers;
mod support;
