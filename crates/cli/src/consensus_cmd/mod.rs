//! `esker consensus`: looking at a consensus log, and measuring one.

mod dump;
mod stat;
mod verify;

use std::path::Path;

use clap::Subcommand;
use esker_consensus::{Error, Inspection, inspect};
use esker_log::{Options, Seq};
use serde_json::{Value, json};

use crate::bench;
use crate::exit::{Failure, Outcome};

/// The commands of `esker consensus`.
#[derive(Debug, Subcommand)]
pub enum ConsensusCommand {
    /// Say what a consensus log holds; needs no lock
    Stat(stat::StatArguments),
    /// Print every slot; needs no lock
    Dump(dump::DumpArguments),
    /// Read and check every byte and every record; exit status 3 at damage
    Verify(verify::VerifyArguments),
    /// Measure a consensus log, beside the floor of this machine
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
        ConsensusCommand::Bench(arguments) => bench::run_consensus(&arguments),
        ConsensusCommand::BenchBuild(arguments) => bench::run_consensus_build(&arguments),
    }
}

/// Reads the records of the log in `dir`.
fn read(dir: &Path) -> Outcome<Inspection> {
    inspect(dir, Options::default()).map_err(|error| failure(&error, dir))
}

/// Quarantined ranges as JSON.
fn ranges(ranges: &[(Seq, Seq)]) -> Vec<Value> {
    ranges.iter().map(|(from, to)| json!({ "from": from.0, "to": to.0 })).collect()
}

/// An operation on the consensus log in `dir` failed.
pub fn failure(error: &Error, dir: &Path) -> Failure {
    match error {
        Error::Log(cause) | Error::CorruptedEntry { cause, .. } => Failure::of_log(cause, dir),
        // The log below vouches for the bytes: it is the log of something else.
        Error::CorruptedRecord { .. } => {
            Failure::failed(format!("{} is no consensus log: {error}", dir.display()))
        }
        _ => Failure::failed(format!("{}: {error}", dir.display())),
    }
}
