//! The `esker` command: the components of Esker in a directory or over a network.
//!
//! `arguments` defines the command line, and a folder implements each component: `log_cmd` is
//! `esker log`. `directory_cmd` has the commands for the directory of any component. The crate
//! `esker-command` has what the commands of the project share.

mod arguments;
mod cluster_cmd;
mod consensus_cmd;
mod consensus_dir;
mod directory_cmd;
mod kv_cmd;
mod log_cmd;
mod manual;
mod sequence_cmd;
mod serve_cmd;
mod snapshot_cmd;
mod temporary_folder;
mod tour_cmd;
mod ts_cmd;
mod up_cmd;
mod writer_process;

use std::process::ExitCode;

use clap::CommandFactory;
use esker_command::exit::Outcome;

use arguments::{Arguments, BenchCommand, EskerCommand};
use directory_cmd::{backup, repair, restore, stat, verify};

fn main() -> ExitCode {
    esker_command::run(|arguments: Arguments| run(arguments.command))
}

fn run(command: EskerCommand) -> Outcome {
    match command {
        EskerCommand::Stat(arguments) => stat::run(&arguments),
        EskerCommand::Verify(arguments) => verify::run(&arguments),
        EskerCommand::Repair(arguments) => repair::run(&arguments),
        EskerCommand::Backup(arguments) => backup::run(&arguments),
        EskerCommand::Restore(arguments) => restore::run(&arguments),
        EskerCommand::Log(command) => log_cmd::run(command),
        EskerCommand::Consensus(command) => consensus_cmd::run(command),
        EskerCommand::Snapshot(command) => snapshot_cmd::run(command),
        EskerCommand::Kv(command) => kv_cmd::run(command),
        EskerCommand::Serve(arguments) => serve_cmd::run(&arguments),
        EskerCommand::Ts(arguments) => ts_cmd::run(&arguments),
        EskerCommand::Sequence(command) => sequence_cmd::run(command),
        EskerCommand::Up(arguments) => up_cmd::run(&arguments),
        EskerCommand::Cluster(command) => cluster_cmd::run(command),
        EskerCommand::Bench(BenchCommand::Floor(arguments)) => {
            esker_bench::machine::command::run(&arguments)
        }
        EskerCommand::Tour(arguments) => tour_cmd::run(&arguments),
        EskerCommand::Completions(arguments) => {
            manual::completions(&arguments, Arguments::command())
        }
        EskerCommand::Man(arguments) => manual::man(&arguments, Arguments::command()),
    }
}
