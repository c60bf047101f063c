//! The directory that a command about consensus logs names: that of one log, or of a manager.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_consensus::{
    COMPONENT, COPY_COMPONENT, Error, Inspection, LogState, ManagedLog, ReadOnlyReason,
    StorageError, inspect_with, logs_in,
};
use esker_log::ReadOnlyLog;
use serde_json::Value;

use esker_command::exit::{Failure, Outcome};
use esker_command::output;

/// How often a log that its manager changes meanwhile is read, and the pause before each time.
const READS_MAX: u32 = 10;
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// A log to read.
#[derive(Debug)]
pub struct Target {
    pub dir: PathBuf,
    /// The entry of the manager, if it is one of its logs.
    managed: Option<ManagedLog>,
}

impl Target {
    /// The key, if it is the log of a manager.
    pub fn key(&self) -> Option<&[u8]> {
        self.managed.as_ref().map(|log| &log.key[..])
    }

    /// Adds the key to a JSON object. One that is not UTF-8 text is base 64.
    pub fn add_key(&self, object: &mut Value) {
        if let Some(key) = self.key() {
            output::add_bytes(object, "key", key);
        }
    }

    /// The failure to read a log whose directory is gone, or has that of another key.
    pub fn displaced(&self) -> Option<Failure> {
        let checked = self.managed.as_ref().map_or(Ok(()), ManagedLog::check);
        checked.err().map(|error| Failure::from_consensus(error, &self.dir))
    }

    /// Whether its directory is gone.
    pub fn is_missing(&self) -> bool {
        self.managed.as_ref().is_some_and(|log| log.state == LogState::Missing)
    }

    /// Reads its records. Calls `progress` with the number of records read so far.
    pub fn read(&self, progress: impl FnMut(u64)) -> Outcome<Inspection> {
        match self.displaced() {
            Some(failure) => Err(failure),
            None => inspect_with(&self.dir, progress).map_err(|error| self.failure(error)),
        }
    }

    /// The failure to read its records.
    pub fn failure(&self, error: impl Into<Error>) -> Failure {
        match error.into() {
            Error::Storage(StorageError::Log(esker_log::Error::Trimmed(_))) => {
                Failure::failed(format!(
                    "{}: another process dropped records before they were read; try again",
                    self.dir.display()
                ))
            }
            error => Failure::from_consensus(error, &self.dir),
        }
    }

    /// The version of the directory, which changes when files of the log are created or removed;
    /// `None` without a directory.
    fn version(&self) -> Version {
        let found = std::fs::metadata(&self.dir).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec()))
    }
}

impl From<ManagedLog> for Target {
    fn from(log: ManagedLog) -> Self {
        Self { dir: log.dir.clone(), managed: Some(log) }
    }
}

/// The inode of a directory, and when its names changed last, in seconds and nanoseconds.
type Version = Option<(u64, i64, i64)>;

/// The report on a log: the text to print, and whether something is wrong.
pub type Report = (String, Outcome);

/// Looks at each of these logs of `dir`, and prints what was found. Returns the failures. One
/// counts only if the log stayed as it was: its manager may have created or removed it meanwhile.
pub fn each(
    dir: &Path,
    targets: Vec<Target>,
    mut look: impl FnMut(&Target) -> Report,
) -> Outcome<Vec<Failure>> {
    let mut failures = Vec::new();
    for mut target in targets {
        for last_try in (0..READS_MAX).rev() {
            let version = target.version();
            let (text, looked) = look(&target);
            if looked.is_err() && last_try > 0 {
                std::thread::sleep(RETRY_PAUSE);
                match change_since(dir, &target, version) {
                    Change::None => {}
                    Change::Replaced(now) => {
                        target = now;
                        continue;
                    }
                    Change::Removed => break,
                }
            }
            output::print(&text)?;
            failures.extend(looked.err());
            break;
        }
    }
    Ok(failures)
}

/// A change of a log.
enum Change {
    None,
    Replaced(Target),
    Removed,
}

/// The change of a log since it had this version.
fn change_since(dir: &Path, target: &Target, version: Version) -> Change {
    let (Some(key), Ok(Some(logs))) = (target.key(), logs_in(dir)) else { return Change::None };
    let Some(now) = logs.into_iter().find(|log| log.key == key) else { return Change::Removed };
    let now = Target::from(now);
    let is_the_same = now.managed == target.managed && now.version() == version;
    // Without a manifest it is being created.
    let is_whole = now.is_missing() || now.dir.join("manifest").exists();
    if is_the_same && is_whole { Change::None } else { Change::Replaced(now) }
}

/// The logs in a directory: the one log that it is, or those of a manager, or the one with a key.
pub fn targets(dir: &Path, key: Option<&str>) -> Outcome<Vec<Target>> {
    let found = logs_in(dir).map_err(|error| Failure::from_consensus(error, dir))?;
    match (found, key) {
        (None, None) => Ok(vec![Target { dir: dir.into(), managed: None }]),
        (None, Some(_)) => Err(without_keys(dir)),
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

/// The failure to look for a key in a directory that is not that of many logs.
fn without_keys(dir: &Path) -> Failure {
    let component = ReadOnlyLog::open(dir).and_then(|log| log.component().id());
    match component {
        Ok(Some(COMPONENT | COPY_COMPONENT)) => Failure::failed(format!(
            "{} is the directory of one log, not of many; leave out --key",
            dir.display()
        )),
        Ok(found) => {
            let (dir, expected) = (dir.to_owned(), Some(COMPONENT));
            let error = esker_log::Error::WrongComponent { dir: dir.clone(), found, expected };
            Failure::from_log(&error, &dir)
        }
        Err(error) => Failure::from_log(&error.into(), dir),
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

/// The word for why a log is read-only.
pub fn read_only(reason: ReadOnlyReason) -> Option<&'static str> {
    match reason {
        ReadOnlyReason::Repaired => Some("repaired"),
        ReadOnlyReason::Copied => Some("copied"),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use esker_consensus::LogManager;

    use super::*;

    fn change(dir: &Path, change: impl FnOnce(&LogManager)) {
        let manager = LogManager::open(dir).unwrap();
        change(&manager);
        manager.close_all().unwrap();
    }

    /// Looks at the one log of a manager. `prepare` runs once it was listed, and `meanwhile` during
    /// the first look. A look fails without a manifest, and the first one in any case. Returns how
    /// often it looked, and the failures.
    fn look(prepare: impl Fn(&Path), meanwhile: impl Fn(&Path)) -> (u32, usize) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        change(dir, |manager| drop(manager.get("a").unwrap()));
        let targets = targets(dir, None).unwrap();
        prepare(&targets[0].dir);
        let mut looks = 0;
        let failures = each(dir, targets, |target| {
            looks += 1;
            if looks == 1 {
                meanwhile(dir);
            }
            let sound = looks > 1 && target.dir.join("manifest").exists();
            let failure = || Err(Failure::failed("not whole".to_owned()));
            (String::new(), if sound { Ok(()) } else { failure() })
        });
        (looks, failures.unwrap().len())
    }

    fn away(log: &Path) {
        std::fs::rename(log.join("manifest"), log.with_extension("aside")).unwrap();
    }

    #[test]
    fn a_log_that_is_being_created_is_looked_at_again() {
        let created = |dir: &Path| {
            let log = targets(dir, None).unwrap().remove(0).dir;
            std::fs::rename(log.with_extension("aside"), log.join("manifest")).unwrap();
        };
        assert_eq!(look(away, created), (2, 0));
    }

    #[test]
    fn a_log_that_was_removed_meanwhile_is_no_failure() {
        let removed = |dir: &Path| change(dir, |manager| assert!(manager.remove("a").unwrap()));
        assert_eq!(look(|_| (), removed), (1, 0));
    }

    /// With a manifest before and after. Bug: what was read of the log before was a failure.
    #[test]
    fn a_log_that_was_removed_and_created_again_is_looked_at_again() {
        let again = |dir: &Path| {
            change(dir, |manager| {
                assert!(manager.remove("a").unwrap());
                drop(manager.get("a").unwrap());
            });
        };
        assert_eq!(look(|_| (), again), (2, 0));
    }

    #[test]
    fn other_failures_count_and_the_tries_end() {
        assert_eq!(look(|_| (), |_| ()), (1, 1));
        assert_eq!(look(away, |_| ()), (READS_MAX, 1));
        let gone = |log: &Path| std::fs::remove_dir_all(log).unwrap();
        assert_eq!(look(gone, |_| ()), (2, 1));
    }
}
