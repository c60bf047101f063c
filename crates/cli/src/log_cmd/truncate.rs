//! `esker log truncate`: removes the oldest records, durably.

use std::path::PathBuf;

use clap::Args;
use esker_log::{Options, Seq};
use serde_json::json;

use crate::exit::{Failure, Outcome};
use crate::log_options;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  # Remove every record below number 1000000
  esker log truncate ./esker-data --before 1000000

It takes the lock. Space is freed in whole segments. Records below N in the segment that contains N \
are no longer readable; their space is freed with that segment.";

/// Arguments of `esker log truncate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TruncateArguments {
    /// The log's directory
    dir: PathBuf,
    /// The number of the first record to keep
    #[arg(long, value_name = "N")]
    before: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Truncates the log and closes it.
pub fn run(arguments: &TruncateArguments) -> Outcome {
    let TruncateArguments { dir, before, json } = arguments;
    let mut options = Options::default();
    options.must_exist = true;
    let log = log_options::for_writing(dir, options)?;
    let truncated = log.truncate_before(Seq(*before));
    let closed = log.close();
    truncated.and(closed).map_err(|error| match error {
        esker_log::Error::NotFound { .. } => Failure::failed(format!(
            "cannot remove every record before {before}: the log ends with record {}",
            log.durable()
        )),
        error => Failure::of_log(&error, dir),
    })?;
    let metadata = log.metadata();
    let oldest = metadata.after.0 + 1;
    if *json {
        return output::print_json(&json!({
            "oldest": oldest,
            "durable": metadata.durable.0,
            "segments": metadata.segments,
            "bytes": metadata.disk_bytes,
        }));
    }
    output::print(&format!(
        "the oldest record is {oldest}, the last {}; {}, {} bytes\n",
        metadata.durable,
        output::counted(metadata.segments as u64, "segment"),
        metadata.disk_bytes
    ))
}
