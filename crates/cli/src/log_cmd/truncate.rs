//! `esker log truncate`: removes the oldest records, durably.

use std::path::PathBuf;

use clap::Args;
use esker_log::{Log, Options, RetentionError, Seq};
use serde_json::json;

use esker_command::exit::{Failure, Outcome, complain};
use esker_command::log_options;
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  # Remove every record below number 1000000
  esker log truncate ./esker-data --before 1000000

It takes the lock. Space is freed in whole segments, and never that of the newest. Records below N in the \
segment that contains N are no longer readable; their space is freed with that segment. If no space was \
freed, and there is some, a note on standard error says what frees it.";

/// The least bytes of truncated records in the only segment of a log that are noted.
const WORTH_A_NOTE: u64 = 1 << 20;

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
    let segments = log.storage().metadata().segments;
    let truncated = log.retention().truncate_before(Seq(*before));
    let closed = log.close();
    truncated.and(closed.map_err(Into::into)).map_err(|error| match error {
        RetentionError::NotFound { .. } => Failure::failed(format!(
            "cannot remove every record before {before}: the log ends with record {}",
            log.durable()
        )),
        error => Failure::from_log(&error.into(), dir),
    })?;
    let metadata = log.storage().metadata();
    let oldest = metadata.after.next().0;
    if metadata.segments == segments {
        note_what_stays(&log);
    }
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

/// Notes that truncated records still take space, and what frees it.
fn note_what_stays(log: &Log) {
    let segments = log.storage().segments();
    let Some(first) = segments.first().filter(|first| first.after < log.storage().metadata().after)
    else {
        return;
    };
    let is_empty = log.storage().metadata().after == log.durable();
    complain(&match segments.len() {
        1 if first.bytes < WORTH_A_NOTE => return,
        1 if is_empty => {
            "note: no space was freed: the newest segment is never dropped, and has the truncated \
             records; append a record with --segment-size 64K, which begins another segment"
                .to_owned()
        }
        1 => format!(
            "note: no space was freed: the newest segment also has later records, and is freed \
             when they are truncated, too, with --before {}, and another segment has begun",
            log.durable().next()
        ),
        _ => format!(
            "note: no space was freed: the oldest segment also has records up to {}, and is freed \
             when they are truncated",
            first.last
        ),
    });
}
