//! The `esker` command: a durable log in a directory, fed from standard input.
//!
//! `arguments` defines the command line, `log_cmd` implements `esker log`, `bench` measures, and
//! `exit` converts an outcome to one line on standard error and an exit status.

mod arguments;
mod bench;
mod choices;
mod cluster_cmd;
mod consensus_cmd;
mod consensus_dir;
mod crash_cmd;
mod destination;
mod endpoints;
mod exit;
mod framing;
mod input;
mod kv_cmd;
mod local_nodes;
mod log_cmd;
mod log_options;
mod manual;
mod option_flags;
mod output;
mod progress;
mod quantity;
mod serve_cmd;
mod signals;
mod snapshot_cmd;
mod stdout_at_start;
mod temporary_folder;
mod tour_cmd;
mod ts_cmd;
mod variables;

use std::process::ExitCode;

use clap::CommandFactory;

use arguments::{Arguments, Component};

#[global_allocator]
static ALLOCATOR: bench::CountingAllocator = bench::CountingAllocator;

fn main() -> ExitCode {
    let arguments = match arguments::parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&variables::explain(variables::name(error))),
    };
    signals::survive_file_size_limit();
    let outcome = match arguments.component {
        Component::Log(command) => log_cmd::run(command),
        Component::Consensus(command) => consensus_cmd::run(command),
        Component::Snapshot(command) => snapshot_cmd::run(command),
        Component::Kv(command) => kv_cmd::run(command),
        Component::Serve(arguments) => serve_cmd::run(&arguments),
        Component::Ts(arguments) => ts_cmd::run(&arguments),
        Component::Cluster(command) => cluster_cmd::run(command),
        Component::Crash(command) => crash_cmd::run(command),
        Component::Bench(command) => bench::run(command),
        Component::Tour(arguments) => tour_cmd::run(&arguments),
        Component::Completions(arguments) => manual::completions(&arguments, Arguments::command()),
        Component::Man(arguments) => manual::man(&arguments, Arguments::command()),
    };
    exit::report(outcome)
}

/// Prints what is wrong with a command line, or the help or the version that it asks for.
fn explain(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // Standard error may be closed.
        let _ = error.print();
        return ExitCode::from(exit::Status::Usage as u8);
    }
    exit::report(output::write_while_open(|| error.print()).map(drop))
}
