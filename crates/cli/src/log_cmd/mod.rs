//! `esker log`: one file per command.

mod append;
mod cat;
mod framing;
mod input;
mod repair;
mod stat;
mod summary;
mod truncate;
mod verify;

use clap::Subcommand;

use crate::bench;
use crate::exit::Outcome;

/// The commands of `esker log`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Append records from standard input, creating the log where there is none
    Append(append::AppendArguments),
    /// Print the durable records; needs no lock
    Cat(cat::CatArguments),
    /// Say what a log holds; needs no lock
    Stat(stat::StatArguments),
    /// Read and check every byte; exit status 3 at damage
    Verify(verify::VerifyArguments),
    /// Put damaged units aside and keep the rest
    Repair(repair::RepairArguments),
    /// Drop the oldest records
    Truncate(truncate::TruncateArguments),
    /// Measure appending, reading and opening, beside the floor of this machine
    Bench(Box<bench::LogBenchArguments>),
    /// Build a log for a benchmark that kills its builder
    #[command(hide = true)]
    BenchBuild(bench::BuildArguments),
    /// Follow a log for a benchmark
    #[command(hide = true)]
    BenchFollow(bench::FollowArguments),
}

/// Runs a command of `esker log`.
pub fn run(command: LogCommand) -> Outcome {
    match command {
        LogCommand::Append(arguments) => append::run(&arguments),
        LogCommand::Cat(arguments) => cat::run(&arguments),
        LogCommand::Stat(arguments) => stat::run(&arguments),
        LogCommand::Verify(arguments) => verify::run(&arguments),
        LogCommand::Repair(arguments) => repair::run(&arguments),
        LogCommand::Truncate(arguments) => truncate::run(&arguments),
        LogCommand::Bench(arguments) => bench::run_log(&arguments),
        LogCommand::BenchBuild(arguments) => bench::run_build(&arguments),
        LogCommand::BenchFollow(arguments) => bench::run_follow(&arguments),
    }
}
