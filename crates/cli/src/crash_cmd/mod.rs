//! `esker crash`: crashes under the shipped components, and a check of what they leave.

#[cfg(feature = "planted-bugs")]
mod hunt;
mod kill;
mod power;
mod report;
mod selection;
mod selftest;
mod table;

use clap::Subcommand;

use crate::exit::Outcome;

/// The commands of `esker crash`.
#[derive(Debug, Subcommand)]
pub enum CrashCommand {
    /// Cut the power of a simulated disk in and between its operations, in recovery too
    Power(power::PowerArguments),
    /// Let a simulated disk fail, stall, fill up and flip bits
    Faults(power::FaultsArguments),
    /// Kill a process that writes, at random moments, on a real disk
    Kill(kill::KillArguments),
    /// Plant bugs, and show what catches them; needs a build with the feature planted-bugs
    Selftest(selftest::SelftestArguments),
    /// Print what was measured and crashed as one HTML page
    Report(report::ReportArguments),
    /// The process that `kill` kills
    #[command(hide = true)]
    Writer(kill::WriterArguments),
}

/// Runs a command of `esker crash`.
pub fn run(command: CrashCommand) -> Outcome {
    match command {
        CrashCommand::Power(arguments) => power::run(&arguments),
        CrashCommand::Faults(arguments) => power::faults(&arguments),
        CrashCommand::Kill(arguments) => kill::run(&arguments),
        CrashCommand::Report(arguments) => report::run(&arguments),
        CrashCommand::Selftest(arguments) => selftest::run(&arguments),
        CrashCommand::Writer(arguments) => kill::write(&arguments),
    }
}
