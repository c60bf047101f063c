//! `esker restore`: makes a directory of a backup.

use std::path::PathBuf;

use clap::Args;

use super::component::{Component, Directory};
use super::destination::{CopyCommand, refuse_inside};
use super::{consensus_backup, log_backup, store_backup};
use esker_command::exit::{Failure, Outcome};

const EXAMPLES: &str = "\
Examples:
  esker restore /mnt/backup/esker-data ./esker-data

DIR must be empty or not exist. It is complete when the command ends with exit status 0.

A log: the backup stays as it is. If it is interrupted, run it again: what is there is continued, or found complete. \
A restored log has the numbers of the original: readers that have seen later records of that one must start over.

A consensus log, or many: DIR opens read-only, as the backup does, until its node has a new number: then run `esker \
consensus renumber DIR`. A node of `esker serve` is not restored: it joins with an empty folder.";

/// Arguments of `esker restore`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RestoreArguments {
    /// The directory of the backup
    backup: PathBuf,
    /// The restored directory: empty, or not there
    dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Restores.
pub fn run(arguments: &RestoreArguments) -> Outcome {
    let RestoreArguments { backup, dir, json } = arguments;
    let found = Directory::find(backup)?;
    refuse_inside(backup, dir)?;
    match found.component {
        Component::Log => log_backup::restore(&found.path, dir, *json),
        Component::Kv => store_backup::copy(&found.path, dir, CopyCommand::Restore, *json),
        Component::Consensus | Component::Manager => {
            consensus_backup::copy(&found, None, dir, CopyCommand::Restore, *json)
        }
        Component::Node => Err(Failure::failed(format!(
            "{} is the log of a node of `esker serve`, which has its number in it: a node joins under a new number \
             with an empty folder",
            found.path.display()
        ))),
    }
}
