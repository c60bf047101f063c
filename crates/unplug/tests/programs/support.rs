//! Runs the command.

use std::process::{Command, Output};

/// The exit status where the system refuses what the command needs.
const REFUSED_STATUS: i32 = 2;

pub fn unplug(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unplug"));
    command.args(arguments);
    command
}

/// Runs the command; `None`, with a line that says so, where a mount is refused.
pub fn answer(arguments: &[&str]) -> Option<(i32, String)> {
    let output = unplug(arguments).output().expect("unplug starts");
    answer_of(&output)
}

pub fn answer_of(output: &Output) -> Option<(i32, String)> {
    let errors = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code().expect("unplug ends by itself");
    if code == REFUSED_STATUS && (errors.contains("/dev/fuse") || errors.contains("namespace")) {
        println!("SKIPPED: {}", errors.trim());
        return None;
    }
    Some((code, format!("{}{errors}", String::from_utf8_lossy(&output.stdout))))
}
