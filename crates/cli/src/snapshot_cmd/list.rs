//! `esker snapshot list`: what the headers of all snapshots say.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::shown::{as_json, as_text, open};
use crate::exit::{Failure, Outcome, complain};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  esker snapshot list ./node-1
  esker snapshot list ./node-1 --json | jq .slot

A line has the slot, the length of the content and the note. Only headers are read: `esker snapshot verify` checks the \
content. A header that is corrupt is named on standard error, and the exit status is 3.";

/// Arguments of `esker snapshot list`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ListArguments {
    /// The log's directory
    dir: PathBuf,
    /// Print one JSON object per snapshot
    #[arg(long)]
    json: bool,
}

/// Prints a line for each snapshot, in the order of slots.
pub fn run(arguments: &ListArguments) -> Outcome {
    let dir = &arguments.dir;
    let snapshots = open(dir)?;
    let mut corrupt = None;
    for slot in snapshots.list().map_err(|error| Failure::of_consensus(&error, dir))? {
        match snapshots.info(slot) {
            Ok(info) if arguments.json => output::print_json(&as_json(&info))?,
            Ok(info) => output::print(&as_text(&info))?,
            // It was removed since.
            Err(esker_consensus::Error::NoSnapshot) => {}
            Err(error) => {
                let failure = Failure::of_consensus(&error, dir);
                complain(failure.message());
                if arguments.json {
                    output::print_json(&json!({ "slot": slot.0, "damage": failure.message() }))?;
                }
                corrupt.get_or_insert(slot);
            }
        }
    }
    match corrupt {
        Some(slot) => Err(Failure::corrupt(format!("the snapshot at slot {slot} is not whole"))),
        None => Ok(()),
    }
}
