//! `esker kv keyspaces`: lists, creates and drops keyspaces.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use esker_kv::Store;
use serde_json::json;

use super::open;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  esker kv keyspaces ./store list
  esker kv keyspaces ./store list --json
  esker kv keyspaces ./store create accounts
  esker kv keyspaces ./store drop accounts

`list` prints a name on each line, with escapes for control characters and backslashes. With --json, a \
line is an object with name and keys, their number. Dropping a keyspace deletes all of its keys.";

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
    List {
        /// Print JSON objects, with the number of keys
        #[arg(long)]
        json: bool,
    },
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
        Action::List { json } => {
            let store = open::read_only(dir)?;
            let line = |name: String| match json {
                true => {
                    let keys = store.find_keyspace(&name).map_or(0, |keyspace| keyspace.len());
                    format!("{}\n", json!({ "name": name, "keys": keys }))
                }
                false => format!("{}\n", output::escaped(&name)),
            };
            output::print(&store.keyspaces().into_iter().map(line).collect::<String>())
        }
        Action::Create { name } => {
            open::check_name(name)?;
            change(dir, false, |store| Ok(store.create_keyspace(name).map(drop)?))
        }
        Action::Drop { name } => change(dir, true, |store| Ok(store.drop_keyspace(name)?)),
    }
}

/// Opens the store, runs the work, and closes the store.
fn change(
    dir: &Path,
    must_exist: bool,
    work: impl FnOnce(&Store) -> esker_kv::Result<()>,
) -> Outcome {
    let store = open::store(dir, must_exist)?;
    let (worked, closed) = (work(&store), store.close());
    worked.and(closed.map_err(Into::into)).map_err(|error| Failure::from_kv(error, dir))
}
