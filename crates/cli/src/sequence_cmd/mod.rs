//! `esker sequence`: series of numbers without gap or repeat.

mod manage_sequences;
mod take_numbers;

use clap::Subcommand;

use esker_command::exit::Outcome;
use esker_command::task_runtime::task_runtime;

/// The commands of `esker sequence`.
#[derive(Debug, Subcommand)]
pub enum SequenceCommand {
    /// Take the next numbers of a sequence
    Next(Box<take_numbers::NextArguments>),
    /// Create a sequence
    Create(manage_sequences::CreateArguments),
    /// List the sequences of a cluster, each with its next number
    List(manage_sequences::ListArguments),
    /// Remove a sequence, for good
    Remove(manage_sequences::RemoveArguments),
}

/// Runs a command of `esker sequence`.
pub fn run(command: SequenceCommand) -> Outcome {
    task_runtime()?.block_on(async {
        match command {
            SequenceCommand::Next(arguments) => take_numbers::run(&arguments).await,
            SequenceCommand::Create(arguments) => manage_sequences::create(&arguments).await,
            SequenceCommand::List(arguments) => manage_sequences::list(&arguments).await,
            SequenceCommand::Remove(arguments) => manage_sequences::remove(&arguments).await,
        }
    })
}
