//! `esker backup`: copies a directory.

use std::path::PathBuf;

use clap::Args;

use super::component::{Component, DirectoryArguments};
use super::destination::{CopyCommand, refuse_inside};
use super::{consensus_backup, log_backup, store_backup};
use esker_command::exit::Outcome;

const EXAMPLES: &str = "\
Examples:
  # Beside a writer; of a log again later, which copies only what has changed
  esker backup ./esker-data /mnt/backup/esker-data

  # The copy is a log, a store or a consensus log
  esker verify /mnt/backup/esker-data

  # Many consensus logs as of one moment, or one of them
  esker backup ./tables ./copy --json | jq .logs
  esker backup ./tables ./users --key users

It copies what is durable. The copy is complete when the command ends with exit status 0. DEST may not be in DIR.

A log: the copy is read back and made durable. The bytes are those of the segments that were copied, with their \
headers and indexes, which `verify` does not count. Segments that the log dropped leave the copy. If it is \
interrupted, run it again; an earlier backup stays a log meanwhile. A copy that was opened for writing is a log of \
its own, and takes no further backup.

A key-value store or a consensus log: DEST must be empty or not exist, and until the copy is complete no command \
opens it. A signal ends the command and removes what it made; SIGINT (Ctrl-C) exits with 130, SIGTERM with 1. After \
a crash, delete DEST and back up again.

A consensus log: snapshots are copied, too; status 3 and a note for each that is corrupt and was left out. Many logs \
are copied while no process has them open: in the one that has, call `LogManager::backup`. The copy opens read-only, \
because the original may promise and accept more. Before a node continues with it, that node gets a new number, and \
`esker consensus renumber DEST` makes the copy an ordinary log. A copy by hand, with `cp`, is not recognised as one: \
it must not be opened beside the original.";

/// Arguments of `esker backup`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BackupArguments {
    #[command(flatten)]
    directory: DirectoryArguments,
    /// The directory of the copy: an earlier backup of this log, empty, or not there
    dest: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Backs up.
pub fn run(arguments: &BackupArguments) -> Outcome {
    let BackupArguments { directory, dest, json } = arguments;
    let found = directory.find_whole("backup")?;
    refuse_inside(&directory.dir, dest)?;
    match found.component {
        Component::Log => log_backup::backup(&found.path, dest, *json),
        Component::Kv => store_backup::copy(&found.path, dest, CopyCommand::Backup, *json),
        Component::Consensus | Component::Manager | Component::Node => {
            let key = directory.key.as_deref();
            consensus_backup::copy(&found, key, dest, CopyCommand::Backup, *json)
        }
    }
}
