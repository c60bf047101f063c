//! The real disk.
//!
//! Positioned reads and writes, `fdatasync`, `fallocate` and `flock`. Each error keeps the complete
//! error of the operating system. Platform differences are in [`system`].
//!
//! Three decisions keep the guarantees of [`Disk`]:
//!
//! * **A sync is never retried.** After a failed `fdatasync` Linux marks the pages clean, so a
//!   second call would succeed and prove nothing. Only reads and writes are retried, only after a
//!   signal interrupted them, and at most [`system::INTERRUPTIONS`] times.
//! * **A path is resolved once.** [`dir`] holds one descriptor, and every name is relative to it.
//! * **A directory is durable before anything is put into it.** [`Disk::create_dir`] syncs the
//!   parent after each directory it creates. An earlier process may have died between those two
//!   steps, so the parent of the deepest existing directory is synced too.

mod probe;
mod std_dir;
mod std_file;
mod system;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::disk::Disk;
use crate::error::{Error, Op, Refusal, Result};
use crate::file::Lock;
use crate::process;

pub(crate) use std_dir::StdDir;
#[cfg(all(target_os = "linux", feature = "io-uring"))]
pub(crate) use std_file::StdFile;

/// The users who may read what a [`StdDisk`] creates. Only the owner may write it. The umask of the
/// process does not restrict this further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Readers {
    /// Files have the mode 0600, directories 0700. The default.
    #[default]
    Owner,
    /// Files have the mode 0640, directories 0750.
    Group,
    /// Files have the mode 0644, directories 0755.
    All,
}

impl Readers {
    fn file_mode(self) -> Mode {
        let owner = Mode::RUSR | Mode::WUSR;
        match self {
            Self::Owner => owner,
            Self::Group => owner | Mode::RGRP,
            Self::All => owner | Mode::RGRP | Mode::ROTH,
        }
    }

    fn dir_mode(self) -> Mode {
        match self {
            Self::Owner => Mode::RWXU,
            Self::Group => Mode::RWXU | Mode::RGRP | Mode::XGRP,
            Self::All => Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH,
        }
    }
}

/// The disk of this machine. It has no state: all instances with the same options are equivalent.
#[derive(Debug, Clone, Copy, Default)]
pub struct StdDisk {
    readers: Readers,
}

impl StdDisk {
    /// Returns the disk of this machine.
    pub const fn new() -> Self {
        Self { readers: Readers::Owner }
    }

    /// Returns this disk, which lets others read what it creates. What is there already keeps its
    /// mode. A log that exists also keeps the readers of its manifest.
    ///
    /// # Examples
    /// ```
    /// use esker_disk::{Readers, StdDisk};
    /// let disk = StdDisk::new().readable_by(Readers::Group);
    /// ```
    #[must_use]
    pub const fn readable_by(mut self, readers: Readers) -> Self {
        self.readers = readers;
        self
    }

    pub(crate) fn open_std_dir(self, path: &Path) -> Result<StdDir> {
        register(Op::OpenDir, path)?;
        let fd = rustix::fs::open(non_empty(path), std_dir::DIRECTORY, Mode::empty())
            .map_err(|errno| dangling(Op::OpenDir, path, errno))?;
        Ok(StdDir::new(fd, path.to_path_buf(), self.readers))
    }

    pub(crate) fn create_std_dir(self, path: &Path) -> Result<StdDir> {
        register(Op::CreateDir, path)?;
        let mut missing = Vec::new();
        let mut existing = path;
        while !is_dir(Op::CreateDir, existing)? {
            missing.push(existing);
            match existing.parent() {
                Some(above) => existing = above,
                None => break,
            }
        }
        sync_entry_of(existing)?;
        for dir in missing.into_iter().rev() {
            let mode = self.readers.dir_mode();
            match rustix::fs::mkdir(dir, mode) {
                Err(Errno::EXIST) if is_dir(Op::CreateDir, dir)? => {}
                made => {
                    let made = made.and_then(|()| match self.readers {
                        Readers::Owner => Ok(()),
                        // The umask does not apply.
                        _ => rustix::fs::chmod(dir, mode),
                    });
                    made.map_err(|errno| not_created(dir, errno))?;
                }
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

/// The kernel releases the lock when its last descriptor is closed. A child process holds a copy
/// between fork and exec, so the lock is also released explicitly. A child that drops its copy of
/// this only closes its descriptors: the lock is that of the process that took it.
#[derive(Debug)]
struct StdLock {
    held: Arc<OwnedFd>,
    /// Whether the handle of the directory has it.
    locked: Arc<AtomicBool>,
}

impl Lock for StdLock {}

impl Drop for StdLock {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        // If this fails, closing the descriptor releases the lock.
        let _ = rustix::fs::flock(&self.held, FlockOperation::Unlock);
        self.locked.store(false, SeqCst);
    }
}

/// Makes this process one that uses Esker, and refuses an opening in a child of one.
fn register(op: Op, path: &Path) -> Result<()> {
    process::register().map_err(|source| Error::new(op, path, None, source))
}

fn failed(op: Op, path: &Path, errno: Errno) -> Error {
    Error::new(op, path, None, io::Error::from(errno))
}

/// The error of a directory that could not be created.
fn not_created(dir: &Path, errno: Errno) -> Error {
    let error = failed(Op::CreateDir, dir, errno);
    let fs = (errno == Errno::NOSPC).then(|| rustix::fs::statvfs(non_empty(parent(dir))));
    let has_none = fs.is_some_and(|fs| fs.is_ok_and(|fs| has_no_inode(&fs)));
    if has_none { error.out_of_inodes() } else { error }
}

/// Whether every inode is in use. A file system without a limit says that it has none at all.
fn has_no_inode(fs: &rustix::fs::StatVfs) -> bool {
    fs.f_files > 0 && fs.f_favail == 0
}

/// The error for a path, at which there may be a symbolic link to nothing.
fn dangling(op: Op, path: &Path, errno: Errno) -> Error {
    let is_link = errno == Errno::NOENT
        && rustix::fs::lstat(non_empty(path))
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink());
    if !is_link {
        return failed(op, path, errno);
    }
    let source = io::Error::new(io::ErrorKind::NotFound, Refusal::DanglingLink);
    Error::new(op, path, None, source)
}

/// Returns `true` for a directory, `false` when nothing exists, an error for anything else.
fn is_dir(op: Op, path: &Path) -> Result<bool> {
    match rustix::fs::stat(non_empty(path)) {
        Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() => Ok(true),
        Ok(_) => Err(failed(op, path, Errno::NOTDIR)),
        Err(Errno::NOENT) => match dangling(op, path, Errno::NOENT) {
            error if error.refusal().is_some() => Err(error),
            _ => Ok(false),
        },
        Err(errno) => Err(failed(op, path, errno)),
    }
}

/// Makes the name of an existing directory durable, if its parent can be opened.
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
    let fd = rustix::fs::open(non_empty(dir), std_dir::DIRECTORY, Mode::empty()).map_err(wrap)?;
    system::sync_all(&fd).map_err(wrap)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Maps the empty path to the current directory.
fn non_empty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
