//! `esker ts decode`.

use clap::Args;

use crate::ts_cmd::timestamp_text::{ShownTimestamp, show};
use esker_command::exit::Outcome;

const EXAMPLES: &str = "\
Examples:
  esker ts decode 18eb02db3097e5170000000000000001
  esker ts decode 470687945031155713
  curl -sf 'http://127.0.0.1:8080/timestamp?n=3' | xxd -p -c 16 |
      xargs esker ts decode";

/// Show what timestamps say
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DecodeArguments {
    /// 32 hexadecimal digits: the epoch in nanoseconds of Unix time, and the index in it. Or a
    /// timestamp of 64 bits, decimal: the epoch's millisecond, and 18 bits of index
    #[arg(value_name = "HEX|U64", required = true)]
    timestamps: Vec<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &DecodeArguments) -> Outcome {
    let parsed = arguments.timestamps.iter().map(|text| ShownTimestamp::parse(text));
    for timestamp in parsed.collect::<Outcome<Vec<_>>>()? {
        if !show(&timestamp, arguments.json)? {
            break;
        }
    }
    Ok(())
}
