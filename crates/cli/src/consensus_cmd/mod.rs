//! `esker consensus`: the commands that only consensus logs have.

mod dump;
mod renumber;

use clap::Subcommand;

use esker_command::exit::Outcome;

/// The commands of `esker consensus`.
#[derive(Debug, Subcommand)]
pub enum ConsensusCommand {
    /// Print every slot; needs no lock
    Dump(dump::DumpArguments),
    /// Let a copy take promises and accepts again, once its node has a new number
    Renumber(renumber::RenumberArguments),
}

/// Runs a command of `esker consensus`.
pub fn run(command: ConsensusCommand) -> Outcome {
    match command {
        ConsensusCommand::Dump(arguments) => dump::run(&arguments),
        ConsensusCommand::Renumber(arguments) => renumber::run(&arguments),
    }
}
