//! How a timestamp is shown.

use esker_oracle::Timestamp;
use serde_json::json;

use esker_command::exit::Outcome;
use esker_command::output::{print_while_open, time_in_nanos};

/// Prints a timestamp on a line: its bytes, the time of its epoch, and its index. Returns whether
/// standard output is still open for reading.
pub fn show(timestamp: Timestamp, as_json: bool) -> Outcome<bool> {
    let Timestamp { epoch, index } = timestamp;
    let time = time_in_nanos(timestamp.time());
    print_while_open(&match as_json {
        true => {
            let object = json!({
                "timestamp": timestamp.to_string(),
                "epoch": epoch,
                "index": index,
                "time": time,
            });
            format!("{object}\n")
        }
        false => format!("{timestamp}  {time}  {index}\n"),
    })
}
