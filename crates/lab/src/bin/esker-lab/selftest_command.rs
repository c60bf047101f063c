//! `esker-lab selftest`: every planted bug has to be caught.

use clap::Args;

use esker_command::exit::Outcome;

const EXAMPLES: &str = "\
Examples:
  cargo run --release -p esker-lab --features planted-bugs -- selftest

  # One bug
  cargo run --release -p esker-lab --features planted-bugs \\
    -- selftest --bug lower_ballot_accepted

The bugs exist only in a build with the feature planted-bugs. No such build may keep data.";

/// Arguments of `esker-lab selftest`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SelftestArguments {
    /// Only this bug; can be repeated
    #[arg(long, value_name = "NAME")]
    bug: Vec<String>,
    /// One JSON object for each bug
    #[arg(long)]
    json: bool,
}

/// Runs `esker-lab selftest`.
#[cfg(feature = "planted-bugs")]
pub fn run(arguments: &SelftestArguments) -> Outcome {
    crate::hunt::run(&arguments.bug, arguments.json)
}

/// Without the feature there is nothing to plant.
#[cfg(not(feature = "planted-bugs"))]
pub fn run(arguments: &SelftestArguments) -> Outcome {
    let SelftestArguments { bug: _, json: _ } = arguments;
    Err(esker_command::exit::Failure::usage(
        "this build has no planted bugs; see `esker-lab selftest --help` for one that has",
    ))
}
