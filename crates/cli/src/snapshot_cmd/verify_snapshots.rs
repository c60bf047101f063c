//! `esker snapshot verify`: checks every byte of snapshots.

use std::path::PathBuf;

use clap::Args;
use esker_consensus::{Error, Slot, SnapshotError};
use serde_json::json;

use super::snapshot_text::{damage, failure, open};
use crate::consensus_dir;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  esker snapshot verify ./node-1
  esker snapshot verify ./node-1 --slot 4999 --json | jq .sound
  esker snapshot verify ./tables --key users

Exit status 0 when every snapshot is whole, 3 when one is not. `esker verify` also checks that a whole one \
covers the slots that were dropped.";

/// Arguments of `esker snapshot verify`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArguments {
    /// The log's directory, or that of many logs
    dir: PathBuf,
    /// The one of many logs
    #[arg(long)]
    key: Option<String>,
    /// Check the snapshot at this slot only [default: all]
    #[arg(long, value_name = "N")]
    slot: Option<u64>,
    /// Print one JSON object per snapshot
    #[arg(long)]
    json: bool,
}

/// Checks the snapshots, and fails when one of them is corrupt.
pub fn run(arguments: &VerifyArguments) -> Outcome {
    let dir = &consensus_dir::target(&arguments.dir, arguments.key.as_deref())?.dir;
    let snapshots = open(dir)?;
    let failed = |error: Error, wanted: &str| failure(error, dir, &snapshots, wanted);
    let wanted = match arguments.slot {
        Some(slot) => vec![Slot(slot)],
        None => snapshots.list().map_err(|error| failed(error.into(), ""))?,
    };
    let (mut corrupt, mut newest) = (Vec::new(), None);
    for slot in wanted {
        let (line, text) = match snapshots.verify(slot) {
            Ok(snapshot) => {
                newest = Some(slot);
                let len = snapshot.info().len;
                let line = json!({ "slot": slot.0, "sound": true, "damage": null });
                (line, format!("{slot} sound: {}\n", output::counted(len, "byte")))
            }
            // It was removed since it was listed.
            Err(SnapshotError::NoSnapshot) if arguments.slot.is_none() => continue,
            Err(error @ SnapshotError::CorruptedSnapshot { .. }) => {
                corrupt.push(slot.to_string());
                let line = damage(slot, &error);
                let what = line["damage"].as_str().unwrap_or_default().to_owned();
                (line, format!("{slot} corrupt: {what}\n"))
            }
            Err(error) => return Err(failed(error.into(), &format!(" at slot {slot}"))),
        };
        if arguments.json { output::print_json(&line)? } else { output::print(&text)? }
    }
    if corrupt.is_empty() {
        return Ok(());
    }
    let rest = match (newest, arguments.slot) {
        (Some(newest), _) => format!("the newest whole one is at slot {newest}"),
        (None, Some(_)) => "without --slot, this command finds one that is".to_owned(),
        (None, None) => "none is whole: fetch one from another replica".to_owned(),
    };
    let dir = dir.display();
    Err(Failure::corrupt(match &corrupt[..] {
        [slot] => format!("the snapshot at slot {slot} of {dir} is not whole; {rest}"),
        all => format!("the snapshots at slots {} of {dir} are not whole; {rest}", all.join(", ")),
    }))
}
