//! `esker snapshot create-from`: writes a snapshot from a file or standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use clap::Args;
use esker_consensus::{ConsensusLog, Slot};

use super::shown::{as_json, as_text};
use crate::exit::{Failure, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  esker snapshot create-from ./node-1 --slot 4999 ./state.bin
  my-state-machine --export | esker snapshot create-from ./node-1 --slot 4999

The state must be that after every slot up to this one: all of them have to be committed. The snapshot is durable when \
the command ends.";

/// Arguments of `esker snapshot create-from`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CreateFromArguments {
    /// The log's directory
    dir: PathBuf,
    /// The state [default: standard input]
    file: Option<PathBuf>,
    /// The last slot that the state has
    #[arg(long, value_name = "N")]
    slot: u64,
    /// Some text that is stored with the snapshot, up to 1024 bytes
    #[arg(long, default_value = "", value_name = "TEXT")]
    note: String,
    /// Afterwards keep this many snapshots that are whole, and remove older ones
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Writes the snapshot.
pub fn run(arguments: &CreateFromArguments) -> Outcome {
    let CreateFromArguments { dir, file, slot, note, keep, json } = arguments;
    if *keep == Some(0) {
        return Err(Failure::usage("--keep must be at least 1".to_owned()));
    }
    let failed = |error| Failure::of_consensus(&error, dir);
    let mut state: Box<dyn Read> = match file {
        Some(path) => Box::new(
            File::open(path)
                .map_err(|error| Failure::of_io(format!("open {}", path.display()), &error))?,
        ),
        None => Box::new(io::stdin().lock()),
    };
    let log = ConsensusLog::builder(dir).must_exist(true).open().map_err(failed)?;
    let mut writer = log.snapshot_writer(Slot(*slot)).map_err(failed)?;
    writer.copy_from(&mut state).map_err(|error| Failure::of_io("copy the state", &error))?;
    let info = writer.finish(note.as_bytes()).map_err(failed)?;
    if let Some(count) = keep {
        log.keep_snapshots(*count).map_err(failed)?;
    }
    log.close().map_err(failed)?;
    if *json { output::print_json(&as_json(&info)) } else { output::print(&as_text(&info)) }
}
