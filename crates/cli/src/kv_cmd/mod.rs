//! `esker kv`: a key-value store in a directory.

mod backup;
mod entries;
mod export;
mod import;
mod keyspaces;
mod maintenance;
mod one;
mod open;
mod scan;
mod watch;

use clap::Subcommand;

use esker_command::exit::Outcome;

/// The commands of `esker kv`.
#[derive(Debug, Subcommand)]
pub enum KvCommand {
    /// Put a value, durably
    Put(one::PutArguments),
    /// Print the value of a key and a newline; exit status 1 if there is none
    Get(one::GetArguments),
    /// Delete a key, durably
    Del(one::DelArguments),
    /// Print keys and values in order
    Scan(scan::ScanArguments),
    /// Put the keys and values of standard input
    Import(import::ImportArguments),
    /// Print all keys and values in order, for `esker kv import`
    Export(export::ExportArguments),
    /// Reclaim the space of overwritten values and deleted keys
    Compact(maintenance::CompactArguments),
    /// Summarize a store
    Stat(maintenance::StatArguments),
    /// Read and check every byte and every record; exit status 3 on corruption
    Verify(maintenance::VerifyArguments),
    /// Copy a store to a new directory; works beside a writer in another process
    Backup(backup::BackupArguments),
    /// Print changes as they become durable; works beside a writer in another process
    Watch(watch::WatchArguments),
    /// List, create or drop keyspaces
    Keyspaces(keyspaces::KeyspacesArguments),
}

/// Runs a command of `esker kv`.
pub fn run(command: KvCommand) -> Outcome {
    match command {
        KvCommand::Put(arguments) => one::put(&arguments),
        KvCommand::Get(arguments) => one::get(&arguments),
        KvCommand::Del(arguments) => one::delete(&arguments),
        KvCommand::Scan(arguments) => scan::run(&arguments),
        KvCommand::Import(arguments) => import::run(&arguments),
        KvCommand::Export(arguments) => export::run(&arguments),
        KvCommand::Compact(arguments) => maintenance::compact(&arguments),
        KvCommand::Stat(arguments) => maintenance::stat(&arguments),
        KvCommand::Verify(arguments) => maintenance::verify(&arguments),
        KvCommand::Backup(arguments) => backup::run(&arguments),
        KvCommand::Watch(arguments) => watch::run(&arguments),
        KvCommand::Keyspaces(arguments) => keyspaces::run(&arguments),
    }
}
