//! `esker snapshot verify`: checks every byte of snapshots.

use std::path::PathBuf;

use clap::Args;
use esker_consensus::{Error, Slot};
use serde_json::json;

use super::shown::open;
use crate::exit::{Failure, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  esker snapshot verify ./node-1
  esker snapshot verify ./node-1 --slot 4999 --json | jq .sound

Exit status 0 when every snapshot is whole, 3 when one is not.";

/// Arguments of `esker snapshot verify`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArguments {
    /// The log's directory
    dir: PathBuf,
    /// Check the snapshot at this slot only [default: all]
    #[arg(long, value_name = "N")]
    slot: Option<u64>,
    /// Print one JSON object per snapshot
    #[arg(long)]
    json: bool,
}

/// Checks the snapshots, and fails when one of them is corrupt.
pub fn run(arguments: &VerifyArguments) -> Outcome {
    let dir = &arguments.dir;
    let failed = |error: &Error| Failure::of_consensus(error, dir);
    let snapshots = open(dir)?;
    let wanted = match arguments.slot {
        Some(slot) => vec![Slot(slot)],
        None => snapshots.list().map_err(|error| failed(&error))?,
    };
    let mut first = None;
    for slot in wanted {
        let (sound, line) = match snapshots.verify(slot) {
            Ok(snapshot) => (None, format!("{slot} sound: {} bytes", snapshot.info().len)),
            // It was removed since it was listed.
            Err(Error::NoSnapshot) if arguments.slot.is_none() => continue,
            Err(error @ Error::CorruptedSnapshot { .. }) => {
                let message = failed(&error).message().to_owned();
                (Some(message.clone()), format!("{slot} corrupt: {message}"))
            }
            Err(error) => return Err(failed(&error)),
        };
        if arguments.json {
            output::print_json(
                &json!({ "slot": slot.0, "sound": sound.is_none(), "damage": sound }),
            )?;
        } else {
            output::print(&(line + "\n"))?;
        }
        if sound.is_some() {
            first.get_or_insert(slot);
        }
    }
    match first {
        Some(slot) => Err(Failure::corrupt(format!(
            "the snapshot at slot {slot} of {} is not whole; an older one is used instead",
            dir.display()
        ))),
        None => Ok(()),
    }
}
