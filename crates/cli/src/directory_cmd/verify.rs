//! `esker verify`: reads and checks every byte of a directory.

use clap::Args;

use super::component::{Component, DirectoryArguments};
use super::{consensus_verify, log_verify, store_verify};
use esker_command::exit::Outcome;

const EXAMPLES: &str = "\
Examples:
  esker verify ./esker-data
  esker verify ./esker-data --json | jq .damage
  esker verify ./tables --key users

It takes no lock, changes nothing, and runs beside a writer. Exit status 0 without corruption, 3 when durable bytes \
are corrupt; `esker repair` quarantines the corruption. The bytes are those of commit units, without the headers and \
indexes of segments, which `backup` and `stat` count as well. With --json, `quarantined` has the ranges of earlier \
repairs: `from` is the last record before the range, `to` the last in it.

A key-value store is checked record by record, too. So is a consensus log, with its snapshots: status 3 also when a \
snapshot is not whole or does not cover the slots that were dropped, a record contradicts another, or the directory \
of one of many logs is gone. After a repair a consensus log is read-only, which this command reports.";

/// Arguments of `esker verify`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArguments {
    #[command(flatten)]
    directory: DirectoryArguments,
    /// Print one JSON object, of many logs one for each
    #[arg(long)]
    json: bool,
}

/// Checks the directory, and fails when it is corrupt.
pub fn run(arguments: &VerifyArguments) -> Outcome {
    let VerifyArguments { directory, json } = arguments;
    let found = directory.find_whole("verify")?;
    match found.component {
        Component::Log => log_verify::run(&found.path, *json),
        Component::Kv => store_verify::run(&found.path, *json),
        Component::Consensus | Component::Manager | Component::Node => {
            consensus_verify::run(&found, directory.key.as_deref(), *json)
        }
    }
}
