//! `esker ts decode`.

use clap::Args;
use esker_oracle::Timestamp;

use crate::ts_cmd::timestamp_text::show;
use esker_command::exit::{Failure, Outcome};

const EXAMPLES: &str = "\
Examples:
  esker ts decode 18eb02db3097e5170000000000000001
  curl -sf 'http://127.0.0.1:8080/timestamp?n=3' | xxd -p -c 16 |
      xargs esker ts decode";

/// Show what timestamps say
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DecodeArguments {
    /// 32 hexadecimal digits: the epoch in nanoseconds of Unix time, and the index in it
    #[arg(value_name = "HEX", required = true)]
    timestamps: Vec<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &DecodeArguments) -> Outcome {
    let parsed = arguments.timestamps.iter().map(|text| {
        text.parse().map_err(|error| Failure::usage(format!("{}: {error}", text.escape_debug())))
    });
    for timestamp in parsed.collect::<Outcome<Vec<Timestamp>>>()? {
        if !show(timestamp, arguments.json)? {
            break;
        }
    }
    Ok(())
}
