//! The keys of a figure or of its parameters.

use serde_json::{Map, Value};

/// Makes an object of these keys, for the JSON output.
pub fn keys<const N: usize>(values: [(&str, Value); N]) -> Map<String, Value> {
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
