//! The summary of `esker log append`, as text and as JSON.

use std::time::Duration;

use serde::Serialize;

use esker_command::exit::Outcome;
use esker_command::output;

/// The summary of what was appended.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    /// Records accepted.
    pub records: u64,
    /// Payload bytes accepted.
    pub bytes: u64,
    /// Time from the start of reading to the close of the log.
    pub seconds: f64,
    /// The first and the last sequence number, when there are records.
    pub first_seq: Option<u64>,
    pub last_seq: Option<u64>,
    /// Input bytes read, and the input size where known.
    pub read_bytes: u64,
    pub input_bytes: Option<u64>,
    /// The last durable record of the log.
    pub durable: u64,
    /// `end of input`, `signal` or `error`.
    pub ended_by: &'static str,
}

impl Summary {
    /// Creates an empty summary.
    pub fn new() -> Self {
        Self { ended_by: "end of input", ..Self::default() }
    }

    /// Adds accepted records, with the numbers of the first and the last.
    pub fn add(&mut self, records: u64, bytes: u64, first: u64, last: u64) {
        self.records += records;
        self.bytes += bytes;
        self.first_seq.get_or_insert(first);
        self.last_seq = Some(last);
    }

    /// Sets the elapsed time.
    pub fn set_elapsed(&mut self, time: Duration) {
        self.seconds = (time.as_secs_f64() * 1e6).round() / 1e6;
    }

    /// Writes the summary to standard output.
    pub fn print(&self, json: bool) -> Outcome {
        if json {
            return output::print_json(self);
        }
        let Self { records, bytes, seconds, durable, .. } = self;
        let rate = *bytes as f64 / seconds.max(1e-6) / 1e6;
        let numbers = match (self.first_seq, self.last_seq) {
            (Some(first), Some(last)) => format!("numbers {first} to {last}, "),
            _ => String::new(),
        };
        let (records, bytes) =
            (output::counted(*records, "record"), output::counted(*bytes, "byte"));
        output::print(&format!(
            "appended {records}, {bytes} in {seconds:.3} s ({rate:.1} MB/s)\n\
             {numbers}durable through {durable}\n"
        ))
    }
}
