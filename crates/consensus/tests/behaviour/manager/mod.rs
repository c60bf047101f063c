//! Many logs by key: references, the limit of open logs, the registry of keys, crashes.
#![allow(clippy::unwrap_used)]

mod backup_moment;
mod closing;
mod crashes;
mod displaced;
mod evict_on_full_disk;
mod initialising;
mod key_registry;
mod limit;
mod patterns;
mod removing;
mod renumbering;
mod soak;
mod stress;
mod wakers;

use std::path::PathBuf;
use std::sync::Arc;

use esker_consensus::{
    AcceptError, CommitError, LogGuard, LogManager, Mode, OpenError, Options, Slot,
};
use esker_disk::Disk;
use esker_disk::sim::SimDisk;

use crate::fixture::{LOW, driven, value};

/// The directory of the manager on a simulated disk.
const DIR: &str = "/logs";

/// A manager on a disk, driven by the caller's threads.
struct Managed {
    manager: LogManager,
    disk: SimDisk,
    engine: esker_log::Engine,
}

impl Drop for Managed {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

fn options(disk: &SimDisk) -> (Options, esker_log::Engine) {
    let (mut options, engine) = driven(disk, Mode::Durable);
    options.mutable_size = 64 << 10;
    options.cache_size = 64 << 10;
    options.log.reserve = Some(128 << 10);
    (options, engine)
}

fn try_open(disk: &SimDisk, max_open: usize) -> Result<Managed, OpenError> {
    let (options, engine) = options(disk);
    let opened = LogManager::builder(DIR).options(options).max_open(max_open).open();
    match opened {
        Ok(manager) => Ok(Managed { manager, disk: disk.clone(), engine }),
        Err(error) => {
            engine.stop();
            Err(error)
        }
    }
}

fn open(disk: &SimDisk, max_open: usize) -> Managed {
    try_open(disk, max_open).unwrap()
}

fn manager(max_open: usize) -> Managed {
    open(&SimDisk::new(1), max_open)
}

/// On a real disk, with the threads of the process.
fn on_real_disk(dir: &std::path::Path, max_open: usize) -> LogManager {
    let mut options = Options::on(Arc::new(esker_disk::StdDisk::new()) as Arc<dyn Disk>);
    options.mutable_size = 64 << 10;
    options.cache_size = 64 << 10;
    options.log.segment_size = 64 << 10;
    options.log.reserve = Some(128 << 10);
    LogManager::builder(dir).options(options).max_open(max_open).open().unwrap()
}

/// Accepts the value of a slot, which belongs to the key, too.
fn accept(log: &LogGuard, slot: u64) -> Result<(), AcceptError> {
    Ok(log.accept(Slot(slot), LOW, &value_of(log.key(), slot))?.blocking_wait()?)
}

fn commit(log: &LogGuard, slot: u64) -> Result<(), CommitError> {
    Ok(log.commit(Slot(slot), LOW)?.blocking_wait()?)
}

fn value_of(key: &[u8], slot: u64) -> Vec<u8> {
    [key, &value(slot)].concat()
}

/// The value that is committed in a slot.
fn committed(log: &LogGuard, slot: u64) -> Vec<u8> {
    log.read_committed(Slot(slot), &log.pin()).unwrap().value().to_vec()
}

fn key(number: u64) -> Vec<u8> {
    format!("table/{number}").into_bytes()
}

/// The directory of the log of the key "abc".
fn dir_of_abc() -> PathBuf {
    PathBuf::from(DIR).join("ba7816bf8f01cfea414140de5dae2223b00361a3")
}

/// The files of the registry on a simulated disk.
fn registry_file(disk: &SimDisk, suffix: &str) -> PathBuf {
    let dir = PathBuf::from(DIR).join("registry");
    let names = disk.files(&dir).unwrap();
    let name = names.into_iter().rfind(|name| name.ends_with(suffix)).unwrap();
    dir.join(name)
}
