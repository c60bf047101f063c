//! `esker stat`: a summary of a directory.

use clap::Args;

use super::component::{Component, DirectoryArguments};
use super::{consensus_stat, log_stat, store_stat};
use esker_command::exit::Outcome;

const EXAMPLES: &str = "\
Examples:
  esker stat ./esker-data
  esker stat ./esker-data --json | jq .durable
  esker stat ./store --keyspace accounts
  esker stat ./tables --key users

It takes no lock, changes nothing, and runs beside a writer. With --json, `component` says what the directory is: \
log, kv, consensus, manager (many consensus logs) or node. Exit status 3 when it found corruption.

Of a log it reads the header and footer of every segment, not every record: for that, use `esker verify`. Of a \
repaired log it shows the ranges that were quarantined. A writer in another container may not be shown: the system \
lists the locks of its own processes.

Of a consensus log it reads every durable record. `bytes` are those of the values. Of many logs, one whose directory \
is gone has `missing`; one that cannot be read is named on standard error, and the exit status is that of the first \
such log. `read_only` says why a log accepts nothing: `repaired`, or `copied`, which `esker consensus renumber` ends. \
For a log whose key is not text, name its directory instead of --key.";

/// Arguments of `esker stat`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatArguments {
    #[command(flatten)]
    directory: DirectoryArguments,
    /// Print one JSON object, of many logs one for each
    #[arg(long)]
    json: bool,
}

/// Prints the summary.
pub fn run(arguments: &StatArguments) -> Outcome {
    let StatArguments { directory, json } = arguments;
    let found = directory.find()?;
    match found.component {
        Component::Log => log_stat::run(&found.path, *json),
        Component::Kv => store_stat::run(&found.path, directory.keyspace.as_deref(), *json),
        Component::Consensus | Component::Manager | Component::Node => {
            consensus_stat::run(&found, directory.key.as_deref(), *json)
        }
    }
}
