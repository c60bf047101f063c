//! The directory that a command about consensus logs names: that of one log, or of a manager.

use std::path::{Path, PathBuf};

use esker_consensus::{Error, Inspection, ManagedLog, inspect, logs_in};
use esker_log::SeqRange;
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome};
use crate::output;

/// A log to look at.
#[derive(Debug)]
pub struct Target {
    pub dir: PathBuf,
    /// Its key, if it is one of a manager.
    pub key: Option<Vec<u8>>,
    /// Whether its directory is gone.
    missing: bool,
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

    /// The failure to look at a log whose directory is gone.
    pub fn missing(&self) -> Option<Failure> {
        let key = self.key.clone().filter(|_| self.missing)?;
        let error = Error::MissingLog { key, dir: self.dir.clone() };
        Some(Failure::of_consensus(&error, &self.dir))
    }

    /// Reads its records.
    pub fn read(&self) -> Outcome<Inspection> {
        match self.missing() {
            Some(missing) => Err(missing),
            None => inspect(&self.dir).map_err(|error| Failure::of_consensus(&error, &self.dir)),
        }
    }
}

impl From<ManagedLog> for Target {
    fn from(log: ManagedLog) -> Self {
        Self { dir: log.dir, key: Some(log.key), missing: log.missing }
    }
}

/// The logs in a directory: the one log that it is, or those of a manager, or the one with a key.
pub fn targets(dir: &Path, key: Option<&str>) -> Outcome<Vec<Target>> {
    let found = logs_in(dir).map_err(|error| Failure::of_consensus(&error, dir))?;
    match (found, key) {
        (None, None) => Ok(vec![Target { dir: dir.into(), key: None, missing: false }]),
        (None, Some(_)) => Err(Failure::failed(format!(
            "{} is not the directory of many logs; leave out --key",
            dir.display()
        ))),
        (Some(logs), None) => Ok(logs.into_iter().map(Target::from).collect()),
        (Some(logs), Some(key)) => {
            let log = logs.into_iter().find(|log| log.key == key.as_bytes());
            let log = log.ok_or_else(|| {
                Failure::failed(format!("{} has no log of key {key:?}", dir.display()))
            })?;
            Ok(vec![log.into()])
        }
    }
}

/// The one log in a directory, or the one with a key.
pub fn target(dir: &Path, key: Option<&str>) -> Outcome<Target> {
    let mut targets = targets(dir, key)?;
    match (targets.pop(), targets.len()) {
        (Some(target), 0) => match target.missing() {
            Some(missing) => Err(missing),
            None => Ok(target),
        },
        (Some(_), others) => Err(Failure::usage(format!(
            "{} has {} logs; say which with --key, or name the directory of one",
            dir.display(),
            others + 1
        ))),
        (None, _) => Err(Failure::failed(format!("{} has no log yet", dir.display()))),
    }
}

/// Converts quarantined ranges to JSON.
pub fn ranges(ranges: &[SeqRange]) -> Vec<Value> {
    ranges.iter().map(|range| json!({ "from": range.from.0, "to": range.to.0 })).collect()
}
