//! The `esker-bench` command: the benchmarks of Esker's components.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use esker_bench::load::follow;
use esker_bench::machine::command as floor;
use esker_bench::measure::allocations::CountingAllocator;
use esker_bench::{consensus, kv, log, timestamp};
use esker_command::exit::Outcome;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const EXAMPLES: &str = "\
Examples:
  # The speed of this machine's disk, and of the log on it
  esker-bench floor
  esker-bench log --writers 100 --size 900

Exit status: 0 done, 1 failed, 2 wrong usage.";

/// Benchmarks of Esker, each next to the hardware floor of this machine.
#[derive(Debug, Parser)]
#[command(
    name = "esker-bench",
    version,
    after_help = EXAMPLES,
    arg_required_else_help = true,
    max_term_width = 80
)]
struct Arguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Benchmark appending to a log, reading and opening
    Log(Box<log::log_arguments::LogBenchArguments>),
    /// Benchmark a consensus log
    Consensus(consensus::ConsensusBenchArguments),
    /// Benchmark a key-value store
    Kv(kv::KvBenchArguments),
    /// Benchmark a cluster of the timestamp service, next to the same HTTP server without one
    Ts(Box<timestamp::TsBenchArguments>),
    /// Measure the hardware floor: the disk and memory of this machine without a log
    Floor(floor::FloorArguments),
    /// Build a log for a benchmark that kills its builder
    #[command(hide = true)]
    LogBuild(log::build_log::BuildArguments),
    /// Follow a log for a benchmark
    #[command(hide = true)]
    LogFollow(follow::FollowArguments),
    /// Build a consensus log for a benchmark that kills its builder
    #[command(hide = true)]
    ConsensusBuild(consensus::ConsensusBuildArguments),
    /// The HTTP server that `ts` compares with
    #[command(hide = true)]
    FloorServer(timestamp::TsFloorArguments),
}

fn main() -> ExitCode {
    esker_command::run(|arguments: Arguments| run(arguments.command))
}

fn run(command: BenchCommand) -> Outcome {
    match command {
        BenchCommand::Log(arguments) => log::run(&arguments),
        BenchCommand::Consensus(arguments) => consensus::run(&arguments),
        BenchCommand::Kv(arguments) => kv::run(&arguments),
        BenchCommand::Ts(arguments) => timestamp::run(&arguments),
        BenchCommand::Floor(arguments) => floor::run(&arguments),
        BenchCommand::LogBuild(arguments) => log::build_log::run(&arguments),
        BenchCommand::LogFollow(arguments) => follow::run(&arguments),
        BenchCommand::ConsensusBuild(arguments) => consensus::run_build(&arguments),
        BenchCommand::FloorServer(arguments) => timestamp::run_floor(&arguments),
    }
}
