//! `esker consensus`: inspecting and copying consensus logs, and benchmarks.

mod backup;
mod dump;
mod renumber;
mod stat;
mod verify;

use clap::Subcommand;

use crate::bench;
use crate::exit::Outcome;

/// The commands of `esker consensus`.
#[derive(Debug, Subcommand)]
pub enum ConsensusCommand {
    /// Summarize a consensus log; needs no lock
    Stat(stat::StatArguments),
    /// Print every slot; needs no lock
    Dump(dump::DumpArguments),
    /// Read and check every byte and every record; exit status 3 on corruption
    Verify(verify::VerifyArguments),
    /// Copy a log, or many logs as of one moment
    Backup(backup::BackupArguments),
    /// Let a copy take promises and accepts again, once its node has a new number
    Renumber(renumber::RenumberArguments),
    /// Benchmark a consensus log, next to the hardware floor of this machine
    Bench(bench::ConsensusBenchArguments),
    /// Build a log for a benchmark that kills its builder
    #[command(hide = true)]
    BenchBuild(bench::ConsensusBuildArguments),
}

/// Runs a command of `esker consensus`.
pub fn run(command: ConsensusCommand) -> Outcome {
    match command {
        ConsensusCommand::Stat(arguments) => stat::run(&arguments),
        ConsensusCommand::Dump(arguments) => dump::run(&arguments),
        ConsensusCommand::Verify(arguments) => verify::run(&arguments),
        ConsensusCommand::Backup(arguments) => backup::run(&arguments),
        ConsensusCommand::Renumber(arguments) => renumber::run(&arguments),
        ConsensusCommand::Bench(arguments) => bench::run_consensus(&arguments),
        ConsensusCommand::BenchBuild(arguments) => bench::run_consensus_build(&arguments),
    }
}
