//! `unplug`: cuts the power under any program.

#![allow(clippy::print_stderr, reason = "a command line tool")]

mod arguments;
mod check;
mod cut_socket;
mod fault;
mod folders;
mod model;
mod mount;
mod process_tree;
mod program;
mod record;
mod report;
mod rng;
mod run;
mod search;
mod states;

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;

/// The exit status when the system refuses a mount or a namespace: that of wrong usage.
const REFUSED_STATUS: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run::run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("unplug: {error:#}");
            ExitCode::from(REFUSED_STATUS)
        }
    }
}
