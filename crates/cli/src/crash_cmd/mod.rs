//! `esker crash`: crashes under the shipped components, and a check of what they leave.

mod kill;
mod power;
mod selection;
mod table;

use clap::Subcommand;

use crate::exit::Outcome;

/// The commands of `esker crash`.
#[derive(Debug, Subcommand)]
pub enum CrashCommand {
    /// Cut the power of a simulated disk in and between its operations, in recovery too
    Power(power::PowerArguments),
    /// Kill a process that writes, at random moments, on a real disk
    Kill(kill::KillArguments),
    /// The process that `kill` kills
    #[command(hide = true)]
    Writer(kill::WriterArguments),
}

/// Runs a command of `esker crash`.
pub fn run(command: CrashCommand) -> Outcome {
    match command {
        CrashCommand::Power(arguments) => power::run(&arguments),
        CrashCommand::Kill(arguments) => kill::run(&arguments),
        CrashCommand::Writer(arguments) => kill::write(&arguments),
    }
}
