//! How a timestamp is shown.

use esker_oracle::Timestamp;
use serde_json::json;

use crate::exit::Outcome;
use crate::output::{print, print_json};

/// Prints a timestamp on a line: its bytes, the time of its epoch, and its index.
pub fn show(timestamp: Timestamp, as_json: bool) -> Outcome {
    let Timestamp { epoch, index } = timestamp;
    let time = humantime::format_rfc3339_nanos(timestamp.time());
    match as_json {
        true => print_json(&json!({
            "timestamp": timestamp.to_string(),
            "epoch": epoch,
            "index": index,
            "time": time.to_string(),
        })),
        false => print(&format!("{timestamp}  {time}  {index}\n")),
    }
}
