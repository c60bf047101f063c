//! Whole files put on the disk and taken from it by a test, durably and at once.

use std::path::Path;

use rustix::io::Errno;

use super::SimDisk;
use super::inspect::inspecting;
use crate::Result;

impl SimDisk {
    /// Makes a file hold these bytes and nothing else, in the cache and on the medium, and its name
    /// durable. A file that is missing is made; its directory is there.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub fn put(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        {
            let mut machine = self.shared.machine();
            let failed = |errno| inspecting(path).failed(errno);
            if machine.names.find(path) == Err(Errno::NOENT) {
                let entry = machine.names.entry(path).map_err(failed)?;
                machine.names.create(entry, false).map_err(failed)?;
            }
            machine.names.settle_everything();
        }
        self.truncate(path, 0)?;
        self.overwrite(path, 0, bytes)
    }

    /// Takes a file from its directory, durably.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub fn remove(&self, path: &Path) -> Result<()> {
        let mut machine = self.shared.machine();
        let failed = |errno| inspecting(path).failed(errno);
        let entry = machine.names.entry(path).map_err(failed)?;
        machine.names.unlink(entry).map_err(failed)?;
        machine.names.settle_everything();
        Ok(())
    }
}
