//! `esker consensus`: inspecting and copying consensus logs.

mod backup;
mod dump;
mod renumber;
mod stat;
mod verify;

use clap::Subcommand;

use esker_command::exit::Outcome;

/// The commands of `esker consensus`.
#[derive(Debug, Subcommand)]
pub enum ConsensusCommand {
    /// Summarize a consensus log; needs no lock
    Stat(stat::StatArguments),
    /// Print every slot; needs no lock
    Dump(dump::DumpArguments),
    /// Read and check every byte and every record; exit status 3 on corruption
    Verify(verify::VerifyArguments),
    /// Copy a log, or many logs as of one moment
    Backup(backup::BackupArguments),
    /// Let a copy take promises and accepts again, once its node has a new number
    Renumber(renumber::RenumberArguments),
}

/// Runs a command of `esker consensus`.
pub fn run(command: ConsensusCommand) -> Outcome {
    match command {
        ConsensusCommand::Stat(arguments) => stat::run(&arguments),
        ConsensusCommand::Dump(arguments) => dump::run(&arguments),
        ConsensusCommand::Verify(arguments) => verify::run(&arguments),
        ConsensusCommand::Backup(arguments) => backup::run(&arguments),
        ConsensusCommand::Renumber(arguments) => renumber::run(&arguments),
    }
}
