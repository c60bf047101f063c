//! How a timestamp is shown.

use esker_oracle::Timestamp;
use serde_json::json;

use esker_command::exit::{Failure, Outcome};
use esker_command::output::{print_while_open, time_in_nanos};

/// A timestamp, and its text: hexadecimal digits, or the decimal ones of a timestamp of 64 bits.
#[derive(Debug, Clone)]
pub struct ShownTimestamp {
    timestamp: Timestamp,
    text: String,
}

impl From<Timestamp> for ShownTimestamp {
    fn from(timestamp: Timestamp) -> Self {
        Self { timestamp, text: timestamp.to_string() }
    }
}

impl ShownTimestamp {
    /// Returns the timestamp of these 64 bits; `None` after the year 2554.
    pub fn from_u64(bits: u64) -> Option<Self> {
        Some(Self { timestamp: Timestamp::from_u64(bits)?, text: bits.to_string() })
    }

    /// Parses the text of a timestamp. A decimal number has no leading zeros: hexadecimal digits
    /// that were cut off are no timestamp.
    pub fn parse(text: &str) -> Outcome<Self> {
        if let Ok(timestamp) = text.parse::<Timestamp>() {
            return Ok(timestamp.into());
        }
        match text.parse::<u64>() {
            Ok(bits) if bits.to_string() == text => Self::from_u64(bits).ok_or_else(|| {
                Failure::usage(format!("{bits}: no timestamp is after the year 2554"))
            }),
            _ => Err(Failure::usage(format!(
                "{}: a timestamp has 32 hexadecimal digits, or is a decimal number of 64 bits",
                text.escape_debug()
            ))),
        }
    }
}

/// Prints a timestamp on a line: its text, the time of its epoch, and its index. Returns whether
/// standard output is still open for reading.
pub fn show(shown: &ShownTimestamp, as_json: bool) -> Outcome<bool> {
    let ShownTimestamp { timestamp, text } = shown;
    let Timestamp { epoch, index } = *timestamp;
    let time = time_in_nanos(timestamp.time());
    print_while_open(&match as_json {
        true => {
            let object = json!({
                "timestamp": text,
                "epoch": epoch,
                "index": index,
                "time": time,
            });
            format!("{object}\n")
        }
        false => format!("{text}  {time}  {index}\n"),
    })
}
