//! The `esker` command: the components of Esker in a directory or over a network.
//!
//! `arguments` defines the command line, and a folder implements each component: `log_cmd` is
//! `esker log`. What the commands of the project share is in the crate `esker-command`.

mod arguments;
mod cluster_cmd;
mod consensus_cmd;
mod consensus_dir;
mod destination;
mod framing;
mod input;
mod kv_cmd;
mod log_cmd;
mod manual;
mod serve_cmd;
mod snapshot_cmd;
mod temporary_folder;
mod tour_cmd;
mod ts_cmd;

use std::process::ExitCode;

use clap::CommandFactory;
use esker_command::exit::Outcome;

use arguments::{Arguments, BenchCommand, Component};

fn main() -> ExitCode {
    esker_command::run(|arguments: Arguments| run(arguments.component))
}

fn run(component: Component) -> Outcome {
    match component {
        Component::Log(command) => log_cmd::run(command),
        Component::Consensus(command) => consensus_cmd::run(command),
        Component::Snapshot(command) => snapshot_cmd::run(command),
        Component::Kv(command) => kv_cmd::run(command),
        Component::Serve(arguments) => serve_cmd::run(&arguments),
        Component::Ts(arguments) => ts_cmd::run(&arguments),
        Component::Cluster(command) => cluster_cmd::run(command),
        Component::Bench(BenchCommand::Floor(arguments)) => {
            esker_bench::machine::command::run(&arguments)
        }
        Component::Tour(arguments) => tour_cmd::run(&arguments),
        Component::Completions(arguments) => manual::completions(&arguments, Arguments::command()),
        Component::Man(arguments) => manual::man(&arguments, Arguments::command()),
    }
}
