//! The `esker-lab` command: crashes under the shipped components, and a check of what they leave.

#[cfg(feature = "planted-bugs")]
mod hunt;
mod kill;
mod power;
mod report;
mod selection;
mod selftest_command;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use esker_command::exit::Outcome;

const EXAMPLES: &str = "\
Examples:
  # 1,536 power cuts of each component under each policy
  esker-lab power

  # 10 runs of each component under each policy, with 3 kills each
  esker-lab kill

Exit status: 0 done, 1 failed or a promise was broken, 2 wrong usage.";

/// The crash lab of Esker.
#[derive(Debug, Parser)]
#[command(
    name = "esker-lab",
    version,
    after_help = EXAMPLES,
    arg_required_else_help = true,
    max_term_width = 80
)]
struct Arguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Cut the power of a simulated disk in and between its operations, in recovery too
    Power(power::PowerArguments),
    /// Let a simulated disk fail, stall, fill up and flip bits
    Faults(power::FaultsArguments),
    /// Kill a process that writes, at random moments, on a real disk
    Kill(kill::KillArguments),
    /// Plant bugs, and show what catches them; needs a build with the feature planted-bugs
    Selftest(selftest_command::SelftestArguments),
    /// Print what was measured and crashed as one HTML page
    Report(report::ReportArguments),
    /// The process that `kill` kills
    #[command(hide = true)]
    Writer(kill::WriterArguments),
}

fn main() -> ExitCode {
    esker_command::run(|arguments: Arguments| run(arguments.command))
}

fn run(command: LabCommand) -> Outcome {
    match command {
        LabCommand::Power(arguments) => power::run(&arguments),
        LabCommand::Faults(arguments) => power::faults(&arguments),
        LabCommand::Kill(arguments) => kill::run(&arguments),
        LabCommand::Report(arguments) => report::run(&arguments),
        LabCommand::Selftest(arguments) => selftest_command::run(&arguments),
        LabCommand::Writer(arguments) => kill::write(&arguments),
    }
}
