//! The real disk.
//!
//! Positioned reads and writes, `fdatasync`, `fallocate` and `flock`, each with the error of the
//! operating system kept whole. What differs between systems stands in [`system`].
//!
//! Two decisions carry the promises of [`Disk`]:
//!
//! * **A sync is asked for once.** After a failed `fdatasync` Linux counts the pages as clean, so a
//!   second call would succeed and prove nothing. Only reads and writes are tried again, and only
//!   when a signal cut them off, [`system::INTERRUPTIONS`] times at most.
//! * **A directory is durable before anything is put into it.** [`StdDisk::create_dir`] syncs the
//!   parent after each directory it makes. An earlier process may have died between those two steps,
//!   so the deepest directory that is already there has its parent synced, too.

mod file;
mod probe;
mod system;

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::{Disk, Error, Facts, File, Lock, Op, Open, Result};

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

    pub(crate) fn open_file(self, path: &Path, how: Open) -> Result<StdFile> {
        let mut flags = OFlags::CLOEXEC | if how.write { OFlags::RDWR } else { OFlags::RDONLY };
        flags.set(OFlags::CREATE, how.create || how.create_new);
        flags.set(OFlags::EXCL, how.create_new);
        flags |= system::flags(how).map_err(|errno| failed(Op::Open, path, errno))?;
        let fd = open(path, flags)?;
        Ok(StdFile::new(fd, path.to_path_buf(), how))
    }
}

impl Disk for StdDisk {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>> {
        Ok(Arc::new(self.open_file(path, how)?))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
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
            self.sync_dir(parent(dir))?;
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        rustix::fs::rename(from, to).map_err(|errno| failed(Op::Rename, from, errno))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        rustix::fs::unlink(path).map_err(|errno| failed(Op::Unlink, path, errno))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(non_empty(dir), flags, Mode::empty())
            .map_err(|errno| failed(Op::SyncDir, dir, errno))?;
        system::sync_all(&fd).map_err(|errno| failed(Op::SyncDir, dir, errno))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let wrap = |source| Error::new(Op::List, dir, None, source);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(non_empty(dir)).map_err(wrap)? {
            names.push(entry.map_err(wrap)?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let fd = open(path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC)?;
        rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| failed(Op::Lock, path, errno))?;
        Ok(Box::new(StdLock { held: fd }))
    }

    fn facts(&self, dir: &Path) -> Result<Facts> {
        if !is_dir(Op::Open, dir)? {
            return Err(failed(Op::Open, dir, Errno::NOENT));
        }
        let direct = probe::works(self, dir, Open::create_new().direct(true));
        let dsync = probe::works(self, dir, Open::create_new().dsync(true));
        Ok(Facts::new("std", direct, dsync))
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

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, flags, FILE_MODE).map_err(|errno| failed(Op::Open, path, errno))
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
    match StdDisk::new().sync_dir(parent(dir)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// The directory of a relative path without one is the current one.
fn non_empty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is being started holds copies of all descriptors until it runs its own program.
    #[test]
    fn a_dropped_lock_is_free_also_while_a_copy_of_its_descriptor_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let fd = open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC).unwrap();
        rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).unwrap();
        let _copy = fd.try_clone().unwrap();
        let held = StdLock { held: fd };
        StdDisk::new().lock(&path).unwrap_err();
        drop(held);
        StdDisk::new().lock(&path).unwrap();
    }
}
