//! The real disk.
//!
//! Positioned reads and writes, `fdatasync`, `fallocate` and `flock`, each with the error of the
//! operating system kept whole. What differs between systems stands in [`system`].
//!
//! Three decisions carry the promises of [`Disk`]:
//!
//! * **A sync is asked for once.** After a failed `fdatasync` Linux counts the pages as clean, so a
//!   second call would succeed and prove nothing. Only reads and writes are tried again, and only
//!   when a signal cut them off, [`system::INTERRUPTIONS`] times at most.
//! * **A path is resolved once.** [`dir`] holds one descriptor, and every name is relative to it.
//! * **A directory is durable before anything is put into it.** [`Disk::create_dir`] syncs the
//!   parent after each directory it makes. An earlier process may have died between those two steps,
//!   so the deepest directory that is already there has its parent synced, too.

mod dir;
mod file;
mod probe;
mod system;

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;

use crate::{Dir, Disk, Error, Lock, Op, Result};

pub(crate) use dir::StdDir;
#[cfg(target_os = "linux")]
pub(crate) use file::StdFile;

/// Files may be read and written by their owner only.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The disk of this machine. Holds nothing, so that any number of them are the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct StdDisk {}

impl StdDisk {
    /// The disk of this machine.
    pub const fn new() -> Self {
        Self {}
    }

    pub(crate) fn open_std_dir(self, path: &Path) -> Result<StdDir> {
        let fd = rustix::fs::open(non_empty(path), dir::DIRECTORY, Mode::empty())
            .map_err(|errno| failed(Op::OpenDir, path, errno))?;
        Ok(StdDir::new(fd, path.to_path_buf()))
    }

    pub(crate) fn create_std_dir(self, path: &Path) -> Result<StdDir> {
        let mut missing = Vec::new();
        let mut there = path;
        while !is_dir(Op::CreateDir, there)? {
            missing.push(there);
            match there.parent() {
                Some(above) => there = above,
                None => break,
            }
        }
        sync_entry_of(there)?;
        for dir in missing.into_iter().rev() {
            match rustix::fs::mkdir(dir, Mode::RWXU) {
                Err(Errno::EXIST) if is_dir(Op::CreateDir, dir)? => {}
                made => made.map_err(|errno| failed(Op::CreateDir, dir, errno))?,
            }
            sync_dir(parent(dir))?;
        }
        self.open_std_dir(path)
    }
}

impl Disk for StdDisk {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(self.open_std_dir(path)?))
    }

    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(self.create_std_dir(path)?))
    }
}

/// The kernel gives the lock back when the last descriptor on it is closed. A process that this one
/// is starting has a copy until it runs its own program, so the lock is also given back by hand.
#[derive(Debug)]
struct StdLock {
    held: OwnedFd,
}

impl Lock for StdLock {}

impl Drop for StdLock {
    fn drop(&mut self) {
        // Where this fails, closing the descriptor does it.
        let _ = rustix::fs::flock(&self.held, FlockOperation::Unlock);
    }
}

fn failed(op: Op, path: &Path, errno: Errno) -> Error {
    Error::new(op, path, None, io::Error::from(errno))
}

/// `true` for a directory, `false` when nothing is there, an error for anything else.
fn is_dir(op: Op, path: &Path) -> Result<bool> {
    match rustix::fs::stat(non_empty(path)) {
        Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() => Ok(true),
        Ok(_) => Err(failed(op, path, Errno::NOTDIR)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(failed(op, path, errno)),
    }
}

/// Makes the name of an existing directory durable, where its parent may be opened at all.
fn sync_entry_of(dir: &Path) -> Result<()> {
    if dir.file_name().is_none() {
        return Ok(());
    }
    match sync_dir(parent(dir)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

fn sync_dir(dir: &Path) -> Result<()> {
    let wrap = |errno| failed(Op::SyncDir, dir, errno);
    let fd = rustix::fs::open(non_empty(dir), dir::DIRECTORY, Mode::empty()).map_err(wrap)?;
    system::sync_all(&fd).map_err(wrap)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// The directory of a relative path without one is the current one.
fn non_empty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
