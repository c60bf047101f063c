//! Whole-file edits by a test, durable at once.

use std::path::Path;

use rustix::io::Errno;

use super::SimDisk;
use super::inspect::inspecting;
use crate::error::Result;

impl SimDisk {
    /// Replaces a file's content with these bytes, in the cache and on the medium, and makes its
    /// name durable. A missing file is created; its directory must exist.
    ///
    /// # Errors
    /// `NotFound` and similar errors.
    pub fn put(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        {
            let mut machine = self.shared.machine();
            let failed = |errno| inspecting(path).failed(errno);
            if machine.names.find(path) == Err(Errno::NOENT) {
                let entry = machine.names.entry(path).map_err(failed)?;
                machine.names.create(entry, false).map_err(failed)?;
            }
            machine.names.persist_everything();
        }
        self.truncate(path, 0)?;
        self.overwrite(path, 0, bytes)
    }

    /// Removes a file from its directory, durably.
    ///
    /// # Errors
    /// `NotFound` and similar errors.
    pub fn remove(&self, path: &Path) -> Result<()> {
        let mut machine = self.shared.machine();
        let failed = |errno| inspecting(path).failed(errno);
        let entry = machine.names.entry(path).map_err(failed)?;
        machine.names.unlink(entry).map_err(failed)?;
        machine.names.persist_everything();
        Ok(())
    }
}
