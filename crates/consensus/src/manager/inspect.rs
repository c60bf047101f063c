//! Looking at a manager's directory without its lock, and without changing it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::{DirDisk, Disk, StdDisk};
use esker_log::{ReadOnlyLog, ReadOptions};

use crate::manager::names::{self, REGISTRY};
use crate::manager::registry::State;
use crate::outcome::{Error, Result};

/// A log of a manager, from [`logs_in`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagedLog {
    /// Its key.
    pub key: Vec<u8>,
    /// Its directory.
    pub dir: PathBuf,
}

/// The logs of the manager in `dir`, in the order of their keys, as of the last durable change;
/// `None` if the directory has no registry, and so is no manager's. Needs no lock.
///
/// # Errors
/// [`Error::Log`], [`Error::CorruptedRecord`].
pub fn logs_in(dir: impl AsRef<Path>) -> Result<Option<Vec<ManagedLog>>> {
    logs_on(Arc::new(StdDisk::new()), dir)
}

/// As [`logs_in`], on `disk`.
///
/// # Errors
/// As [`logs_in`].
pub fn logs_on(disk: Arc<dyn Disk>, dir: impl AsRef<Path>) -> Result<Option<Vec<ManagedLog>>> {
    let dir = dir.as_ref();
    let base = match disk.open_dir(dir) {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        base => base.map_err(esker_log::Error::Io)?,
    };
    let names = base.list().map_err(esker_log::Error::Io)?;
    if !names.iter().any(|name| name == REGISTRY) {
        return Ok(None);
    }
    let options = ReadOptions::on(Arc::new(DirDisk::new(base)));
    let log = ReadOnlyLog::builder(REGISTRY).options(options).open().map_err(Error::Log)?;
    let state = State::read(log.stream(esker_log::Start::Oldest).map_err(Error::Log)?)?;
    // One that was only just registered may not be there yet.
    let logs = state.kept().into_iter().filter_map(|key| {
        let name = names::directory_of(&key);
        let dir = names.contains(&name).then(|| dir.join(name))?;
        Some(ManagedLog { key: key.to_vec(), dir })
    });
    Ok(Some(logs.collect()))
}
