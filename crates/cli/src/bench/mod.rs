//! Benchmarks. Each prints what was measured beside the floor of this machine, sampled in the same run
//! on the same file system, and says whether what was written was read back and compared.
//!
//! `floor` measures the bare disk, `crew` has the concurrent callers, `payload` derives every record
//! from its writer and number, `readback` compares, `figure` prints. `fanout` has a `crowd` of readers
//! and one `pace`d writer, `catchup` one reader; both `verify` what is read as it is read, and both may have a
//! `follower`, which is another process.

mod allocations;
mod append;
mod arguments;
mod build;
mod catchup;
mod cold;
mod consensus;
mod crew;
mod crowd;
mod fanout;
mod figure;
mod floor;
mod follow;
mod follower;
mod latency;
mod moments;
mod no_disk;
mod open;
mod pace;
mod payload;
mod per_thread;
mod place;
mod raw;
mod readback;
mod resources;
mod verify;

use clap::Subcommand;

use crate::exit::Outcome;

pub use allocations::CountingAllocator;
pub use arguments::LogBenchArguments;
pub use build::{BuildArguments, run as run_build};
pub use consensus::{
    ConsensusBenchArguments, ConsensusBuildArguments, run as run_consensus,
    run_build as run_consensus_build,
};
pub use follow::{FollowArguments, run as run_follow};

/// The commands of `esker bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// What the bare disk and memory of this machine can do
    Floor(floor::FloorArguments),
}

/// Runs a command of `esker bench`.
pub fn run(command: BenchCommand) -> Outcome {
    match command {
        BenchCommand::Floor(arguments) => floor::run(&arguments),
    }
}

/// Runs `esker log bench`.
pub fn run_log(arguments: &LogBenchArguments) -> Outcome {
    arguments.check()?;
    match arguments {
        arguments if arguments.open => open::run(arguments),
        arguments if arguments.catchup => catchup::run(arguments),
        LogBenchArguments { readers: Some(readers), .. } => fanout::run(arguments, *readers),
        arguments => append::run(arguments),
    }
}
