//! `unplug`: cuts the power under any program.

use std::process::ExitCode;

fn main() -> ExitCode {
    unplug::run_command()
}
