//! `esker-bench`: what it prints, measures and checks.

/// The commands, of which `command` is `esker-bench`.
mod esker {
    pub use esker_testkit::commands::*;

    pub fn command<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> std::process::Command {
        program("esker-bench", arguments)
    }
}

mod documented_commands;
mod json_keys;
mod kv;
mod many_callers;
mod offsets;
mod options;
mod readers;
mod usage;
