//! The folders of a run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

pub struct Folders {
    base: PathBuf,
    /// Where the recorded directory is mounted.
    pub recorded: PathBuf,
    /// The states of the checks, in memory.
    pub states: PathBuf,
}

impl Folders {
    /// Creates the folders. The mount namespace must be this process's own.
    pub fn new() -> Result<Self> {
        let base = tempfile::Builder::new().prefix("unplug-").tempdir();
        let base = base.context("failed to make a temporary folder")?.keep();
        let folders = Self { recorded: base.join("dir"), states: base.join("states"), base };
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

    /// Removes all but the kept state. What stays of an empty folder is no reason to fail.
    pub fn remove(&self) {
        let _ = unmount(&self.states, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.states);
        let _ = fs::remove_dir(&self.recorded);
        let _ = fs::remove_dir(&self.base);
    }
}
