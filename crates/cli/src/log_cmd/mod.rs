//! `esker log`: one file per command.

mod append;
mod cat;
mod offsets;
mod range;
mod salvage;
mod summary;
mod truncate;

use clap::Subcommand;

use esker_command::exit::Outcome;

/// The commands of `esker log`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Append records from standard input; creates the log if missing
    Append(append::AppendArguments),
    /// Print the durable records; needs no lock
    Cat(cat::CatArguments),
    /// Remove the oldest records
    Truncate(truncate::TruncateArguments),
    /// Print the valid records of a quarantined file
    Salvage(salvage::SalvageArguments),
    /// Show or change the named offsets of consumers
    Offsets(offsets::OffsetsArguments),
}

/// Runs a command of `esker log`.
pub fn run(command: LogCommand) -> Outcome {
    match command {
        LogCommand::Append(arguments) => append::run(&arguments),
        LogCommand::Cat(arguments) => cat::run(&arguments),
        LogCommand::Truncate(arguments) => truncate::run(&arguments),
        LogCommand::Salvage(arguments) => salvage::run(&arguments),
        LogCommand::Offsets(arguments) => offsets::run(&arguments),
    }
}
