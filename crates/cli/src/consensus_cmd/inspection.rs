//! Reading a consensus log without opening it.

use std::path::Path;

use esker_consensus::{Inspection, inspect};
use esker_log::Seq;
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome};

/// Reads the records of the log in `dir`.
pub fn read(dir: &Path) -> Outcome<Inspection> {
    inspect(dir).map_err(|error| Failure::of_consensus(&error, dir))
}

/// Converts quarantined ranges to JSON.
pub fn ranges(ranges: &[(Seq, Seq)]) -> Vec<Value> {
    ranges.iter().map(|(from, to)| json!({ "from": from.0, "to": to.0 })).collect()
}
