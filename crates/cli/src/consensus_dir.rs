//! Reading a consensus log without opening it.

use std::path::{Path, PathBuf};

use esker_consensus::{Inspection, inspect, logs_in};
use esker_log::SeqRange;
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome};
use crate::output;

/// Reads the records of the log in `dir`.
pub fn read(dir: &Path) -> Outcome<Inspection> {
    inspect(dir).map_err(|error| Failure::of_consensus(&error, dir))
}

/// A log to look at.
#[derive(Debug)]
pub struct Target {
    pub dir: PathBuf,
    /// Its key, if it is one of a manager.
    pub key: Option<Vec<u8>>,
}

impl Target {
    /// Adds the key to a JSON object. One that is not UTF-8 text is base 64.
    pub fn add_key(&self, object: &mut Value) {
        let Some(key) = &self.key else { return };
        match std::str::from_utf8(key) {
            Ok(text) => object["key"] = text.into(),
            Err(_) => object["key_b64"] = output::base64(key).into(),
        }
    }
}

/// The logs in a directory: the one log that it is, or those of a manager, or the one with a key.
pub fn targets(dir: &Path, key: Option<&str>) -> Outcome<Vec<Target>> {
    let found = logs_in(dir).map_err(|error| Failure::of_consensus(&error, dir))?;
    match (found, key) {
        (None, None) => Ok(vec![Target { dir: dir.into(), key: None }]),
        (None, Some(_)) => Err(Failure::failed(format!(
            "{} is not the directory of many logs; leave out --key",
            dir.display()
        ))),
        (Some(logs), wanted) => {
            let matches = |key: &[u8]| wanted.is_none_or(|wanted| wanted.as_bytes() == key);
            let all: Vec<Target> = logs
                .into_iter()
                .filter(|log| matches(&log.key))
                .map(|log| Target { dir: log.dir, key: Some(log.key) })
                .collect();
            match wanted {
                Some(wanted) if all.is_empty() => {
                    Err(Failure::failed(format!("{} has no log of key {wanted:?}", dir.display())))
                }
                _ => Ok(all),
            }
        }
    }
}

/// Converts quarantined ranges to JSON.
pub fn ranges(ranges: &[SeqRange]) -> Vec<Value> {
    ranges.iter().map(|range| json!({ "from": range.from.0, "to": range.to.0 })).collect()
}
