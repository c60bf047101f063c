//! `esker ts`: timestamps from the service, and what they mean.

mod decode;
mod take;
mod timestamp_text;

use clap::{Args, Subcommand};

use esker_command::exit::Outcome;

const EXAMPLES: &str = "\
Examples:
  # Three timestamps
  esker ts --n 3

  # As numbers of 64 bits, like those of TiKV
  esker ts --n 3 --u64

  # From a cluster: any node, the leader is found
  esker ts --endpoint http://10.0.0.1:8080 --endpoint http://10.0.0.2:8080

  # Over TLS, with the authority of `esker cluster certs`
  esker ts --endpoint https://10.0.0.1:8080 --ca ca.pem

  # What a timestamp says
  esker ts decode 18eb02db3097e5170000000000000001";

/// Ask for timestamps
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct TsArguments {
    #[command(flatten)]
    take: take::TakeArguments,
    #[command(subcommand)]
    command: Option<TsCommand>,
}

#[derive(Debug, Subcommand)]
enum TsCommand {
    /// Show what timestamps say
    Decode(decode::DecodeArguments),
}

/// Runs `esker ts` or one of its commands.
pub fn run(arguments: &TsArguments) -> Outcome {
    match &arguments.command {
        None => take::run(&arguments.take),
        Some(TsCommand::Decode(arguments)) => decode::run(arguments),
    }
}
