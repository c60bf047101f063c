//! The methods of [`Disk`] on the simulated disk.

use std::path::{Component, Path};
use std::sync::Arc;

use rustix::io::Errno;

use super::SimDisk;
use super::machine::{Call, Count, Machine};
use super::namespace::NodeId;
use super::sim_dir::SimDir;
use crate::dir::Dir;
use crate::disk::Disk;
use crate::error::{Op, Result};

impl SimDisk {
    fn call<'a>(&self, op: Op, path: &'a Path, count: Count) -> Call<'a> {
        Call { op, path, offset: None, count, takes_space: false, life: self.life }
    }

    fn open_at(
        &self,
        path: &Path,
        find: impl FnOnce(&Machine) -> std::result::Result<NodeId, Errno>,
    ) -> Result<SimDir> {
        let call = self.call(Op::OpenDir, path, Count::Nothing);
        let (node, life) = self.shared.operate(call, |machine| {
            let node = find(machine)?;
            Ok((machine.open_dir(node)?, machine.life))
        })?;
        Ok(SimDir { shared: Arc::clone(&self.shared), node, life, path: path.into() })
    }

    /// Moves a file or directory to another path, as another process's `mv` does. Counts as a
    /// rename. Durable after both directories are synced.
    ///
    /// # Errors
    /// As [`Dir::rename`].
    pub fn mv(&self, from: &Path, to: &Path) -> Result<()> {
        self.shared.operate(self.call(Op::Rename, from, Count::Operation), |machine| {
            machine.stats.renames += 1;
            let (from, to) = (machine.names.entry(from)?, machine.names.entry(to)?);
            machine.names.rename(from, to)
        })
    }
}

impl Disk for SimDisk {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(self.open_at(path, |machine| machine.names.find(path))?))
    }

    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        let root = if path.has_root() { Path::new("/") } else { Path::new("") };
        let mut at = self.open_at(root, |machine| machine.names.find(root))?;
        for component in path.components() {
            match component {
                Component::Normal(name) => at = at.create_below(&name.to_string_lossy())?,
                Component::ParentDir => {
                    let call = self.call(Op::CreateDir, path, Count::Nothing);
                    return Err(call.failed(Errno::INVAL));
                }
                _ => {}
            }
        }
        Ok(Arc::new(at))
    }
}
