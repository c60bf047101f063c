//! `esker snapshot list`: what the headers of all snapshots say.

use std::path::PathBuf;

use clap::Args;
use esker_consensus::SnapshotError;

use super::snapshot_text::{as_json, as_text, damage, open};
use crate::consensus_dir;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  esker snapshot list ./node-1
  esker snapshot list ./node-1 --json | jq .slot
  esker snapshot list ./tables --key users

A line has the slot, the length of the state and the note. Only headers are read: `esker snapshot verify` checks the \
state. A header that is corrupt is named on standard error, and the exit status is 3.";

/// Arguments of `esker snapshot list`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ListArguments {
    /// The log's directory, or that of many logs
    dir: PathBuf,
    /// The one of many logs
    #[arg(long)]
    key: Option<String>,
    /// Print one JSON object per snapshot
    #[arg(long)]
    json: bool,
}

/// Prints a line for each snapshot, in the order of slots.
pub fn run(arguments: &ListArguments) -> Outcome {
    let dir = &consensus_dir::target(&arguments.dir, arguments.key.as_deref())?.dir;
    let snapshots = open(dir)?;
    let mut corrupt = 0;
    for slot in snapshots.list().map_err(|error| Failure::from_consensus(error, dir))? {
        match snapshots.info(slot) {
            Ok(info) if arguments.json => output::print_json(&as_json(&info))?,
            Ok(info) => output::print(&as_text(&info))?,
            // It was removed since.
            Err(SnapshotError::NoSnapshot) => {}
            Err(error) => {
                complain(Failure::from_consensus(error.clone(), dir).message());
                if arguments.json {
                    output::print_json(&damage(slot, &error))?;
                }
                corrupt += 1;
            }
        }
    }
    match corrupt {
        0 => Ok(()),
        1 => Err(Failure::corrupt("1 header is corrupt".to_owned())),
        _ => Err(Failure::corrupt(format!("{corrupt} headers are corrupt"))),
    }
}
