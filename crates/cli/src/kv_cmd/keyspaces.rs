//! `esker kv keyspaces`: lists, creates and drops keyspaces.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use esker_kv::Store;

use super::open;
use crate::exit::{Failure, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  esker kv keyspaces ./store list
  esker kv keyspaces ./store create accounts
  esker kv keyspaces ./store drop accounts

Dropping a keyspace deletes all of its keys.";

/// Arguments of `esker kv keyspaces`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct KeyspacesArguments {
    /// The store's directory
    dir: PathBuf,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the name of each keyspace
    List,
    /// Create a keyspace; one that exists stays as it is
    Create {
        /// The keyspace's name
        name: String,
    },
    /// Drop a keyspace with all of its keys
    Drop {
        /// The keyspace's name
        name: String,
    },
}

/// Runs the action.
pub fn run(arguments: &KeyspacesArguments) -> Outcome {
    let KeyspacesArguments { dir, action } = arguments;
    match action {
        Action::List => {
            let names = open::read_only(dir)?.keyspaces();
            output::print(&names.iter().map(|name| format!("{name}\n")).collect::<String>())
        }
        Action::Create { name } => {
            change(dir, false, |store| store.create_keyspace(name).map(drop))
        }
        Action::Drop { name } => change(dir, true, |store| store.drop_keyspace(name)),
    }
}

/// Opens the store, runs the work, and closes the store.
fn change(
    dir: &Path,
    must_exist: bool,
    work: impl FnOnce(&Store) -> esker_kv::Result<()>,
) -> Outcome {
    let store = open::store(dir, must_exist)?;
    work(&store).and(store.close()).map_err(|error| Failure::of_kv(&error, dir))
}
