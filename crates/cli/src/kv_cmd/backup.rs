//! `esker kv backup`: copies a store to a new directory.
//!
//! It takes no lock, so it can run concurrently with a writer.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;

use clap::Args;
use esker_kv::{Error, Store, UNFINISHED_BACKUP, backup_log};
use esker_log::ReadOnlyLog;
use serde_json::json;

use super::open;
use crate::destination::refuse_inside;
use esker_command::exit::{Failure, Outcome, no_space_for_copy};
use esker_command::output;
use esker_command::signals;

const EXAMPLES: &str = "\
Examples:
  esker kv backup ./store ./copy

It works beside a writer in another process, and copies what is durable when it begins, or later. DEST is \
a store when the command ends with exit status 0; open it, or move it to the place of the lost one. Until \
then no command opens it. A signal ends the command and removes what it made; SIGINT (Ctrl-C) exits with \
130. After a crash, delete DEST and back up again. DEST may not be in DIR.";

/// Arguments of `esker kv backup`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BackupArguments {
    #[command(flatten)]
    store: open::WholeStore,
    /// The directory of the copy, which must be empty or not exist
    dest: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Copies the store.
pub fn run(arguments: &BackupArguments) -> Outcome {
    let BackupArguments { store, dest, json } = arguments;
    let dir = store.dir("backup")?;
    let log = open::log(dir)?;
    refuse_inside(dir, dest)?;
    let interrupted = signals::close_at_signal({
        let log = log.clone();
        move || log.close()
    })
    .map_err(|error| Failure::of_io("catch signals", &error))?;
    let position = backup_log(&log, Store::builder(dest)).map_err(|error| match &error {
        Error::Closed if interrupted.load(SeqCst) => {
            Failure::interrupted("interrupted: the backup is not complete, and its files were removed")
        }
        Error::Closed => Failure::failed(
            "a signal ended the command: the backup is not complete, and its files were removed",
        ),
        Error::Log(esker_log::Error::NoSpace { cause, .. }) => no_space_for_copy(cause, dest),
        Error::Trimmed { .. } => Failure::failed(format!(
            "{}: the writer overwrites records faster than they are copied; try again when it writes less",
            dir.display()
        )),
        Error::NotEmpty { .. } if is_unfinished(dest) => Failure::failed(format!(
            "{} is an unfinished backup of a key-value store; delete it and back up again",
            dest.display()
        )),
        Error::NotEmpty { .. } => Failure::failed(error.to_string()),
        _ => Failure::of_kv(&error, dir),
    })?;
    if *json {
        return output::print_json(&json!({ "position": position.0 }));
    }
    output::print(&format!("copied everything up to position {position}\n"))
}

/// Whether an earlier backup to this directory did not end.
fn is_unfinished(dest: &Path) -> bool {
    let component = ReadOnlyLog::open(dest).and_then(|log| log.component().id());
    component.is_ok_and(|found| found == Some(UNFINISHED_BACKUP))
}
