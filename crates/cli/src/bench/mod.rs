//! Benchmarks. Each prints what was measured beside the floor of this machine, sampled in the same run
//! on the same file system, and says whether what was written was read back and compared.
//!
//! `floor` measures the bare disk, `crew` has the concurrent callers, `payload` derives every record
//! from its writer and number, `readback` compares, `figure` prints.

mod allocations;
mod append;
mod arguments;
mod build;
mod consensus;
mod consensus_build;
mod consensus_recover;
mod crew;
mod figure;
mod floor;
mod latency;
mod open;
mod payload;
mod place;
mod raw;
mod readback;
mod resources;

use clap::Subcommand;

use crate::exit::Outcome;

pub use allocations::CountingAllocator;
pub use arguments::LogBenchArguments;
pub use build::{BuildArguments, run as run_build};
pub use consensus::{ConsensusBenchArguments, run as run_consensus};
pub use consensus_build::{ConsensusBuildArguments, run as run_consensus_build};

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
    if arguments.open { open::run(arguments) } else { append::run(arguments) }
}
