//! The directory that a command about consensus logs names: that of one log, or of a manager.

use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_consensus::{Inspection, LogState, ManagedLog, inspect, logs_in};
use esker_log::SeqRange;
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome};
use crate::output;

/// How often a log that is being created is looked at again, and after which pause.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// A log to look at.
#[derive(Debug)]
pub struct Target {
    pub dir: PathBuf,
    /// Its key, if it is one of a manager.
    pub key: Option<Vec<u8>>,
    log: Option<ManagedLog>,
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

    /// The failure to look at a log whose directory is gone, or has that of another key.
    pub fn displaced(&self) -> Option<Failure> {
        let checked = self.log.as_ref().map_or(Ok(()), ManagedLog::check);
        checked.err().map(|error| Failure::of_consensus(&error, &self.dir))
    }

    /// Whether its directory is gone.
    pub fn is_missing(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.state == LogState::Missing)
    }

    /// Reads its records.
    pub fn read(&self) -> Outcome<Inspection> {
        match self.displaced() {
            Some(failure) => Err(failure),
            None => inspect(&self.dir).map_err(|error| Failure::of_consensus(&error, &self.dir)),
        }
    }
}

impl From<ManagedLog> for Target {
    fn from(log: ManagedLog) -> Self {
        Self { dir: log.dir.clone(), key: Some(log.key.clone()), log: Some(log) }
    }
}

/// Looks at each of these logs of `dir`. A failure counts only if the log is still there: its
/// manager may be creating it, or may have removed it since it was listed.
pub fn each(
    dir: &Path,
    targets: &[Target],
    mut look: impl FnMut(&Target) -> Outcome,
) -> Vec<Failure> {
    let mut failures = Vec::new();
    for target in targets {
        let mut tries = 0;
        let failure = loop {
            let Err(failure) = look(target) else { break None };
            let Some(key) = &target.key else { break Some(failure) };
            let is_there = || {
                let logs = logs_in(dir).ok().flatten();
                logs.is_none_or(|logs| logs.iter().any(|log| log.key == *key))
            };
            if target.dir.join("manifest").exists() || target.is_missing() || tries == TRIES {
                break Some(failure);
            }
            if !is_there() {
                break None;
            }
            tries += 1;
            std::thread::sleep(PAUSE);
        };
        failures.extend(failure);
    }
    failures
}

/// The logs in a directory: the one log that it is, or those of a manager, or the one with a key.
pub fn targets(dir: &Path, key: Option<&str>) -> Outcome<Vec<Target>> {
    let found = logs_in(dir).map_err(|error| Failure::of_consensus(&error, dir))?;
    match (found, key) {
        (None, None) => Ok(vec![Target { dir: dir.into(), key: None, log: None }]),
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
        (Some(target), 0) => match target.displaced() {
            Some(failure) => Err(failure),
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use esker_consensus::LogManager;

    use super::*;

    /// Looks at a log of which the manifest is elsewhere, with failure until `change` at the second
    /// look. Returns how often it looked, and the failures.
    fn look_twice(manifest_is_there: bool, change: impl Fn(&Path)) -> (u32, usize) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        let manager = LogManager::open(dir).unwrap();
        drop(manager.get("a").unwrap());
        manager.close_all().unwrap();
        let targets = targets(dir, None).unwrap();
        let manifest = targets[0].dir.join("manifest");
        if !manifest_is_there {
            std::fs::rename(&manifest, dir.join("aside")).unwrap();
        }
        let mut looks = 0;
        let failures = each(dir, &targets, |_| {
            looks += 1;
            if looks == 2 {
                change(dir);
            }
            if manifest.exists() && looks > 1 {
                return Ok(());
            }
            Err(Failure::failed("not whole".to_owned()))
        });
        (looks, failures.len())
    }

    #[test]
    fn a_log_that_is_being_created_is_looked_at_again() {
        let created = |dir: &Path| {
            let log = targets(dir, None).unwrap().remove(0);
            std::fs::rename(dir.join("aside"), log.dir.join("manifest")).unwrap();
        };
        assert_eq!(look_twice(false, created), (2, 0));
    }

    #[test]
    fn a_log_that_was_removed_meanwhile_is_no_failure() {
        let removed = |dir: &Path| {
            let manager = LogManager::open(dir).unwrap();
            assert!(manager.remove("a").unwrap());
            manager.close_all().unwrap();
        };
        assert_eq!(look_twice(false, removed), (2, 0));
    }

    #[test]
    fn other_failures_count_and_the_tries_end() {
        assert_eq!(look_twice(true, |_| ()), (1, 1));
        assert_eq!(look_twice(false, |_| ()), (TRIES + 1, 1));
    }
}
