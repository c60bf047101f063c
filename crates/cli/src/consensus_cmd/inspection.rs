//! Reading a consensus log without opening it.

use std::path::Path;

use esker_consensus::{Inspection, inspect};
use esker_log::SeqRange;
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome};

/// Reads the records of the log in `dir`.
pub fn read(dir: &Path) -> Outcome<Inspection> {
    inspect(dir).map_err(|error| Failure::of_consensus(&error, dir))
}

/// Converts quarantined ranges to JSON.
pub fn ranges(ranges: &[SeqRange]) -> Vec<Value> {
    ranges.iter().map(|range| json!({ "from": range.from.0, "to": range.to.0 })).collect()
}
