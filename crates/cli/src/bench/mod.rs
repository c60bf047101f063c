//! Benchmarks. Each reports its figures with the hardware floor, sampled in the same run on the
//! same file system, and whether all written data was read back and compared.
//!
//! `machine` measures the bare disk, `load` has the concurrent callers and readers, `records`
//! derives every record from its writer and number and compares what is read, `measure` counts and
//! prints, `runs` are the benchmarks of the log, `consensus` those of the consensus log, `kv` those
//! of the key-value store, `timestamp` those of the timestamp service.

mod arguments;
mod consensus;
mod kv;
mod load;
mod machine;
mod measure;
mod page_cache;
mod records;
mod runs;
mod timestamp;
mod workdir;

use clap::Subcommand;

use crate::exit::Outcome;

pub use arguments::LogBenchArguments;
pub use consensus::{
    ConsensusBenchArguments, ConsensusBuildArguments, run as run_consensus,
    run_build as run_consensus_build,
};
pub use kv::{KvBenchArguments, run as run_kv};
pub use load::follow::{FollowArguments, run as run_follow};
pub use measure::allocations::CountingAllocator;
pub use runs::build::{BuildArguments, run as run_build};
pub use timestamp::{TsBenchArguments, TsFloorArguments, run as run_ts, run_floor as run_ts_floor};

/// The commands of `esker bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure the hardware floor: the disk and memory of this machine without a log
    Floor(machine::command::FloorArguments),
}

/// Runs a command of `esker bench`.
pub fn run(command: BenchCommand) -> Outcome {
    match command {
        BenchCommand::Floor(arguments) => machine::command::run(&arguments),
    }
}

/// Runs `esker log bench`.
pub fn run_log(arguments: &LogBenchArguments) -> Outcome {
    arguments.check()?;
    match arguments {
        arguments if arguments.open => runs::open::run(arguments),
        arguments if arguments.catchup => runs::catchup::run(arguments),
        arguments if arguments.offsets => runs::offsets::run(arguments),
        LogBenchArguments { readers: Some(readers), .. } => runs::fanout::run(arguments, *readers),
        arguments => runs::append::run(arguments),
    }
}
