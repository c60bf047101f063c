//! `esker log`: one file per command.

mod append;
mod backup;
mod cat;
mod json_line;
mod offsets;
mod range;
mod record_text;
mod repair;
mod salvage;
mod stat;
mod summary;
mod truncate;
pub mod verify;
mod writer;

use clap::Subcommand;

use esker_command::exit::Outcome;

/// The commands of `esker log`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Append records from standard input; creates the log if missing
    Append(append::AppendArguments),
    /// Print the durable records; needs no lock
    Cat(cat::CatArguments),
    /// Summarize a log; needs no lock
    Stat(stat::StatArguments),
    /// Read and check every byte; exit status 3 on corruption
    Verify(verify::VerifyArguments),
    /// Quarantine corrupt commit units and keep the rest
    Repair(repair::RepairArguments),
    /// Remove the oldest records
    Truncate(truncate::TruncateArguments),
    /// Copy a log beside its writer; again, only what has changed
    Backup(backup::BackupArguments),
    /// Make a log of a backup
    Restore(backup::RestoreArguments),
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
        LogCommand::Stat(arguments) => stat::run(&arguments),
        LogCommand::Verify(arguments) => verify::run(&arguments),
        LogCommand::Repair(arguments) => repair::run(&arguments),
        LogCommand::Truncate(arguments) => truncate::run(&arguments),
        LogCommand::Backup(arguments) => backup::run(&arguments),
        LogCommand::Restore(arguments) => backup::restore(&arguments),
        LogCommand::Salvage(arguments) => salvage::run(&arguments),
        LogCommand::Offsets(arguments) => offsets::run(&arguments),
    }
}
