//! The folders of a run.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::geteuid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

const PREFIX: &str = "unplug-";
/// A file that is locked while its run lives. A kept folder has none.
const LOCK: &str = "lock";

pub struct Folders {
    base: PathBuf,
    /// Where the recorded directory is mounted.
    pub recorded: PathBuf,
    /// The states of the checks, in memory.
    pub states: PathBuf,
    /// The socket of `unplug cut`.
    pub socket: PathBuf,
    _lock: File,
}

impl Folders {
    /// Creates the folders, and removes those of runs that were killed. The mount namespace must be
    /// this process's own.
    pub fn new() -> Result<Self> {
        remove_abandoned(&std::env::temp_dir());
        // First: a signal while the folder is created would leave it.
        let signals =
            Signals::new([SIGHUP, SIGINT, SIGTERM]).context("failed to handle signals")?;
        let base = tempfile::Builder::new().prefix(PREFIX).tempdir();
        let base = base.context("failed to make a temporary folder")?.keep();
        let lock = lock(&base).context("failed to lock a temporary folder")?;
        remove_at_signal(signals, base.clone()).context("failed to handle signals")?;
        let (recorded, states, socket) = (recorded(&base), states(&base), socket(&base));
        let folders = Self { recorded, states, socket, base, _lock: lock };
        for folder in [&folders.recorded, &folders.states] {
            fs::create_dir(folder).with_context(|| format!("{}", folder.display()))?;
        }
        mount("tmpfs", Path::new(&folders.states), "tmpfs", MountFlags::empty(), None)
            .context("failed to mount a file system in memory for the states")?;
        Ok(folders)
    }

    /// A folder for a state that the user is to look at. It stays.
    pub fn kept(&self) -> Result<PathBuf> {
        let kept = self.base.join("failing");
        fs::create_dir_all(&kept).with_context(|| format!("failed to make {}", kept.display()))?;
        Ok(kept)
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        remove(&self.base);
    }
}

fn recorded(base: &Path) -> PathBuf {
    base.join("dir")
}

fn states(base: &Path) -> PathBuf {
    base.join("states")
}

fn socket(base: &Path) -> PathBuf {
    base.join("socket")
}

/// Removes all but the kept state. What stays of an empty folder is no reason to fail.
fn remove(base: &Path) {
    for folder in [recorded(base), states(base)] {
        let _ = unmount(&folder, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&folder);
    }
    let _ = fs::remove_file(socket(base));
    let _ = fs::remove_file(base.join(LOCK));
    let _ = fs::remove_dir(base);
}

/// Removes the folders when a signal ends this process.
fn remove_at_signal(mut signals: Signals, base: PathBuf) -> io::Result<()> {
    let wait = move || {
        for signal in signals.forever() {
            remove(&base);
            let _ = emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().name("clean up".into()).spawn(wait).map(drop)
}

/// A lock that the kernel takes back when this process ends. Its file has its name only when it is
/// locked, so that no other run finds it before.
fn lock(base: &Path) -> io::Result<File> {
    let new = base.join("lock.new");
    let file = File::create(&new)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(new, base.join(LOCK))?;
    Ok(file)
}

/// Removes the folders of this user's runs that were killed. Those that cannot be removed stay.
fn remove_abandoned(temporary: &Path) {
    let Ok(entries) = fs::read_dir(temporary) else { return };
    for entry in entries.flatten() {
        let is_ours = entry
            .metadata()
            .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw());
        if !is_ours || !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let Ok(file) = File::open(entry.path().join(LOCK)) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
