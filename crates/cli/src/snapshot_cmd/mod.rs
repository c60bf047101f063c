//! `esker snapshot`: the snapshots of a consensus log, alone or one of many.

mod create_from;
mod list;
mod print_state;
mod snapshot_text;
mod verify_snapshots;

use clap::Subcommand;

use esker_command::exit::Outcome;

/// The commands of `esker snapshot`.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// List snapshots; needs no lock
    List(list::ListArguments),
    /// Write a snapshot from a file or standard input; needs the lock
    CreateFrom(create_from::CreateFromArguments),
    /// Check a snapshot, and print its state; needs no lock
    Restore(print_state::RestoreArguments),
    /// Read and check every byte; exit status 3 for a snapshot that is not whole; needs no lock
    Verify(verify_snapshots::VerifyArguments),
}

/// Runs a command of `esker snapshot`.
pub fn run(command: SnapshotCommand) -> Outcome {
    match command {
        SnapshotCommand::List(arguments) => list::run(&arguments),
        SnapshotCommand::CreateFrom(arguments) => create_from::run(&arguments),
        SnapshotCommand::Restore(arguments) => print_state::run(&arguments),
        SnapshotCommand::Verify(arguments) => verify_snapshots::run(&arguments),
    }
}
