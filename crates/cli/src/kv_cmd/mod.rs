//! `esker kv`: a key-value store in a directory.

mod compact;
mod entries;
mod export;
mod import;
mod keyspaces;
pub mod open;
mod scan;
mod single_key;
mod watch;

use clap::Subcommand;

use esker_command::exit::Outcome;

/// The commands of `esker kv`.
#[derive(Debug, Subcommand)]
pub enum KvCommand {
    /// Put a value, durably
    Put(single_key::PutArguments),
    /// Print the value of a key and a newline; exit status 1 if there is none
    Get(single_key::GetArguments),
    /// Delete a key, durably
    Del(single_key::DelArguments),
    /// Print keys and values in order
    Scan(scan::ScanArguments),
    /// Put the keys and values of standard input
    Import(import::ImportArguments),
    /// Print all keys and values in order, for `esker kv import`
    Export(export::ExportArguments),
    /// Reclaim the space of overwritten values and deleted keys
    Compact(compact::CompactArguments),
    /// Print changes as they become durable; works beside a writer in another process
    Watch(watch::WatchArguments),
    /// List, create or drop keyspaces
    Keyspaces(keyspaces::KeyspacesArguments),
}

/// Runs a command of `esker kv`.
pub fn run(command: KvCommand) -> Outcome {
    match command {
        KvCommand::Put(arguments) => single_key::put(&arguments),
        KvCommand::Get(arguments) => single_key::get(&arguments),
        KvCommand::Del(arguments) => single_key::delete(&arguments),
        KvCommand::Scan(arguments) => scan::run(&arguments),
        KvCommand::Import(arguments) => import::run(&arguments),
        KvCommand::Export(arguments) => export::run(&arguments),
        KvCommand::Compact(arguments) => compact::run(&arguments),
        KvCommand::Watch(arguments) => watch::run(&arguments),
        KvCommand::Keyspaces(arguments) => keyspaces::run(&arguments),
    }
}
