//! Looking at a manager's directory without its lock, and without changing it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker_disk::{DirDisk, Disk, StdDisk};
use esker_log::{ReadOnlyLog, ReadOptions};

use crate::component::{REGISTRY_COMPONENT, REGISTRY_COPY_COMPONENT};
use crate::errors::manager_errors::OpenError;
use crate::manager::directory_names::{REGISTRY_DIR, directory_of, is_log, label_of};
use crate::manager::registry::unreadable;
use crate::manager::registry_state::RegistryState;
use crate::storage_error::StorageError;

/// The most attempts to list the keys while some are added and removed, and the pause before the
/// registry is read again: what is durable for its writer is so for readers a little later.
const LISTING_TRIES: u32 = 16;
const REGISTRY_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// A log of a manager, from [`logs_in`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagedLog {
    /// Its key.
    pub key: Vec<u8>,
    /// Its directory.
    pub dir: PathBuf,
    /// The contents of its directory.
    pub state: LogState,
}

/// The contents of a key's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogState {
    /// Its log.
    Present,
    /// Nothing, although the log was created: see [`OpenError::MissingLog`].
    Missing,
    /// The log of another key: see [`OpenError::WrongLabel`].
    Another {
        /// The label of that log.
        label: Vec<u8>,
    },
}

impl ManagedLog {
    /// Refuses a directory that does not have the log of this key.
    ///
    /// # Errors
    /// [`OpenError::MissingLog`], [`OpenError::WrongLabel`].
    pub fn check(&self) -> Result<(), OpenError> {
        let key = self.key.clone();
        match &self.state {
            LogState::Present => Ok(()),
            LogState::Missing => Err(OpenError::MissingLog { key, dir: self.dir.clone() }),
            LogState::Another { label } => {
                Err(OpenError::WrongLabel { found: label.clone(), expected: key })
            }
        }
    }
}

/// The logs of the manager in `dir`, in the order of their keys, as of the last durable change;
/// `None` if the directory is no manager's. If its registry was moved away, the keys are those that
/// the logs have as their labels. Needs no lock.
///
/// # Errors
/// [`OpenError::CorruptedRegistry`], [`OpenError::UnfinishedBackup`], [`OpenError::Storage`].
pub fn logs_in(dir: impl AsRef<Path>) -> Result<Option<Vec<ManagedLog>>, OpenError> {
    logs_on(Arc::new(StdDisk::new()), dir)
}

/// As [`logs_in`], on `disk`.
///
/// # Errors
/// As [`logs_in`].
pub fn logs_on(
    disk: Arc<dyn Disk>,
    dir: impl AsRef<Path>,
) -> Result<Option<Vec<ManagedLog>>, OpenError> {
    let dir = dir.as_ref();
    let base = match disk.open_dir(dir) {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        base => base.map_err(StorageError::from_log)?,
    };
    let list = || base.list().map_err(StorageError::from_log);
    let options = ReadOptions::on(Arc::new(DirDisk::new(Arc::clone(&base))));
    let mut before = None;
    for last_try in (0..LISTING_TRIES).rev() {
        let names = list()?;
        if !names.iter().any(|name| name == REGISTRY_DIR) {
            return Ok(labelled(dir, &names, &options)?);
        }
        let state = match registry(&options) {
            // It may be created now, or the manager removed.
            Err(StorageError::Log(esker_log::Error::NotALog { .. })) if last_try > 0 => {
                std::thread::sleep(REGISTRY_RETRY_INTERVAL);
                continue;
            }
            state => state.map_err(|error| unreadable(&dir.join(REGISTRY_DIR), error))?,
        };
        // What it has as created was there before, and is there unless it is being removed.
        let found = found(dir, &state, &list()?, &options);
        let is_missing = found.iter().any(|log| log.state == LogState::Missing);
        if !is_missing || last_try == 0 || before == Some(state.last()) {
            return Ok(Some(found));
        }
        before = Some(state.last());
        std::thread::sleep(REGISTRY_RETRY_INTERVAL);
    }
    Err(StorageError::Log(esker_log::Error::Timeout).into())
}

/// The logs of the keys of a registry in a directory with these names.
fn found(
    dir: &Path,
    state: &RegistryState,
    names: &[String],
    options: &ReadOptions,
) -> Vec<ManagedLog> {
    let of = |key: &Arc<[u8]>| {
        let log = managed(dir, key, names, options);
        // It was only just added.
        let is_new = log.state == LogState::Missing && !state.is_created(key);
        (!is_new).then_some(log)
    };
    state.kept().filter_map(of).collect()
}

/// The log of a key in a directory with these names.
fn managed(dir: &Path, key: &[u8], names: &[String], options: &ReadOptions) -> ManagedLog {
    let name = directory_of(key);
    let state = match names.contains(&name) {
        false => LogState::Missing,
        // Its own reader reports app metadata that cannot be read.
        true => match label_of(&name, options) {
            Ok(Some(label)) if label != key => LogState::Another { label },
            _ => LogState::Present,
        },
    };
    ManagedLog { key: key.to_vec(), dir: dir.join(name), state }
}

fn registry(options: &ReadOptions) -> Result<RegistryState, StorageError> {
    let found = esker_log::component::identify(REGISTRY_DIR, options.clone());
    let found = found.map_err(StorageError::from_log)?;
    if found.is_some_and(|found| found != REGISTRY_COMPONENT && found != REGISTRY_COPY_COMPONENT) {
        let (dir, expected) = (REGISTRY_DIR.into(), Some(REGISTRY_COMPONENT));
        return Err(StorageError::Log(esker_log::Error::WrongComponent { dir, found, expected }));
    }
    let log = ReadOnlyLog::builder(REGISTRY_DIR).options(options.clone()).open();
    let log = log.map_err(StorageError::from_log)?;
    RegistryState::read(log.stream(esker_log::Start::Oldest).map_err(StorageError::from_log)?)
}

/// The logs of a directory without a registry.
fn labelled(
    dir: &Path,
    names: &[String],
    options: &ReadOptions,
) -> Result<Option<Vec<ManagedLog>>, StorageError> {
    let mut keys = BTreeSet::new();
    for name in names.iter().filter(|name| is_log(name)) {
        keys.extend(label_of(name, options)?);
    }
    let logs: Vec<_> = keys.iter().map(|key| managed(dir, key, names, options)).collect();
    Ok((!logs.is_empty()).then_some(logs))
}
