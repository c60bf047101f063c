//! A directory of the real disk: one descriptor, and every name relative to it.
//!
//! Files are opened with `O_NOFOLLOW`, so symbolic links are not followed, and with `O_NONBLOCK`,
//! so opening a FIFO does not wait for its other end. The opened file must be a regular file.
//! System calls on a regular file ignore `O_NONBLOCK`, but io_uring honours it, so it is cleared
//! after the open.
//!
//! A file that root creates in a directory of another user belongs to that user, who could not use
//! it otherwise.
//!
//! The lock is an `flock` on this directory's own open file description, which another handle to
//! the directory does not share. This handle could take it again, so it keeps whether it has it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use super::std_file::StdFile;
use super::{Readers, StdLock, failed, has_no_inode, probe, system};
use crate::dir::Dir;
use crate::dir::check_name;
use crate::error::{Error, Op, Refusal, Result};
use crate::file::{Facts, File, Lock, OpenMode};
use crate::io::{Read, read_each};
use crate::process::refuse_if_forked;

/// Open flags for directories, by path and by name.
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory descriptor and the path it was opened by.
#[derive(Debug)]
pub(crate) struct StdDir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    readers: Mutex<Readers>,
    /// The owner of what is created here, if that is not this process.
    owner: Option<(Uid, Gid)>,
    /// Whether this handle has the lock.
    locked: Arc<AtomicBool>,
    /// The device where a probe found that all open modes work, in this directory, in one that was
    /// opened through it, or in the one that it was opened through.
    all_modes_work: Arc<OnceLock<u64>>,
}

impl StdDir {
    pub(super) fn new(fd: OwnedFd, path: PathBuf, readers: Readers) -> Self {
        let (locked, all_modes_work) = Default::default();
        let (readers, owner) = (Mutex::new(readers), other_owner(&fd));
        Self { fd: Arc::new(fd), path, readers, owner, locked, all_modes_work }
    }

    /// Refuses an operation on this name, or in a child of the process that opened the directory.
    fn check(&self, op: Op, name: &str) -> Result<()> {
        refuse_if_forked(op, &self.path)?;
        check_name(op, &self.path, name)
    }

    fn readers(&self) -> Readers {
        *self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self) -> Option<u64> {
        rustix::fs::fstat(&self.fd).ok().map(|stat| stat.st_dev)
    }

    pub(crate) fn open_file(&self, name: &str, how: OpenMode) -> Result<StdFile> {
        self.check(Op::Open, name)?;
        let wrap = |errno| self.failed(Op::Open, name, errno);
        let mut flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        flags |= if how.write { OFlags::RDWR } else { OFlags::RDONLY };
        flags.set(OFlags::CREATE, how.create || how.create_new);
        flags.set(OFlags::EXCL, how.create_new);
        flags |= system::flags(how).map_err(wrap)?;
        let fd = self.open_or_create(name, flags).map_err(|errno| self.refused(name, errno))?;
        match kind_of(&rustix::fs::fstat(&fd).map_err(wrap)?) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(wrap(Errno::ISDIR)),
            other => return Err(self.not_a_file(name, other)),
        }
        let now = rustix::fs::fcntl_getfl(&fd).map_err(wrap)?;
        rustix::fs::fcntl_setfl(&fd, now.difference(OFlags::NONBLOCK)).map_err(wrap)?;
        Ok(StdFile::new(fd, self.path_of(name), how))
    }

    /// Opens a file. If others than the owner may read what this creates, the umask does not
    /// restrict it. If root creates it for another owner, it belongs to that one.
    fn open_or_create(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let readers = self.readers();
        let mode = readers.file_mode();
        let open = |flags| rustix::fs::openat(&self.fd, name, flags, mode);
        let as_created = readers == Readers::Owner && self.owner.is_none();
        if as_created || !flags.contains(OFlags::CREATE) {
            return open(flags);
        }
        match open(flags | OFlags::EXCL) {
            Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => open(flags),
            created => {
                let fd = created?;
                if readers != Readers::Owner {
                    rustix::fs::fchmod(&fd, mode)?;
                }
                self.give(&fd)?;
                Ok(fd)
            }
        }
    }

    pub(crate) fn open_below(&self, name: &str) -> Result<Self> {
        self.check(Op::OpenDir, name)?;
        let fd = rustix::fs::openat(&self.fd, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|errno| self.failed(Op::OpenDir, name, errno))?;
        let all_modes_work = Arc::clone(&self.all_modes_work);
        let dir = Self::new(fd, self.path_of(name), self.readers());
        Ok(Self { all_modes_work, ..dir })
    }

    pub(crate) fn create_below(&self, name: &str) -> Result<Self> {
        self.check(Op::CreateDir, name)?;
        let readers = self.readers();
        let mode = readers.dir_mode();
        let is_new = match rustix::fs::mkdirat(&self.fd, name, mode) {
            Err(Errno::EXIST) => false,
            made => made.map(|()| true).map_err(|errno| self.failed(Op::CreateDir, name, errno))?,
        };
        let dir = self.open_below(name)?;
        if is_new {
            let made = match readers {
                Readers::Owner => Ok(()),
                _ => rustix::fs::fchmod(&dir.fd, mode),
            };
            let made = made.and_then(|()| self.give(&dir.fd));
            made.map_err(|errno| self.failed(Op::CreateDir, name, errno))?;
        }
        self.sync()?;
        Ok(if is_new { self.open_below(name)? } else { dir })
    }

    /// Gives what was created to the owner of this directory. A file system that refuses it, such
    /// as one of another machine, decides itself whose it is.
    fn give(&self, created: &OwnedFd) -> rustix::io::Result<()> {
        let Some((user, group)) = self.owner else { return Ok(()) };
        match rustix::fs::fchown(created, Some(user), Some(group)) {
            Err(Errno::PERM | Errno::INVAL) => Ok(()),
            given => given,
        }
    }

    fn failed(&self, op: Op, name: &str, errno: Errno) -> Error {
        let error = failed(op, &self.path_of(name), errno);
        let creates = matches!(op, Op::Open | Op::CreateDir) && errno == Errno::NOSPC;
        let has_none = creates && rustix::fs::fstatvfs(&self.fd).is_ok_and(|fs| has_no_inode(&fs));
        if has_none { error.out_of_inodes() } else { error }
    }

    /// Maps a failed open to an error. The errno for a name that is not a regular file is
    /// ambiguous, so this checks the type of the name again.
    fn refused(&self, name: &str, errno: Errno) -> Error {
        if matches!(errno, Errno::LOOP | Errno::NXIO | Errno::OPNOTSUPP | Errno::INVAL)
            && let Ok(stat) = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            && kind_of(&stat) != FileType::RegularFile
        {
            return self.not_a_file(name, kind_of(&stat));
        }
        self.failed(Op::Open, name, errno)
    }

    fn not_a_file(&self, name: &str, kind: FileType) -> Error {
        let found = match kind {
            FileType::Symlink => "a symbolic link",
            FileType::Fifo => "a FIFO",
            FileType::Socket => "a socket",
            FileType::BlockDevice | FileType::CharacterDevice => "a device",
            _ => "something else",
        };
        let source = io::Error::new(io::ErrorKind::InvalidInput, Refusal::NotAFile { found });
        Error::new(Op::Open, &self.path_of(name), None, source)
    }
}

impl Dir for StdDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str, how: OpenMode) -> Result<Arc<dyn File>> {
        Ok(Arc::new(self.open_file(name, how)?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check(Op::Rename, from)?;
        self.check(Op::Rename, to)?;
        rustix::fs::renameat(&self.fd, from, &self.fd, to)
            .map_err(|errno| self.failed(Op::Rename, from, errno))
    }

    fn exchange(&self, a: &str, b: &str) -> Result<()> {
        self.check(Op::Exchange, a)?;
        self.check(Op::Exchange, b)?;
        rustix::fs::renameat_with(&self.fd, a, &self.fd, b, RenameFlags::EXCHANGE).map_err(
            |errno| match errno {
                // An old kernel, or a file system that does not support the flag.
                Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => {
                    let source = io::Error::new(io::ErrorKind::Unsupported, Refusal::Exchange);
                    Error::new(Op::Exchange, &self.path_of(a), None, source)
                }
                errno => self.failed(Op::Exchange, a, errno),
            },
        )
    }

    fn unlink(&self, name: &str) -> Result<()> {
        self.check(Op::Unlink, name)?;
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
            .map_err(|errno| self.failed(Op::Unlink, name, errno))
    }

    fn available(&self) -> Option<u64> {
        let stat = rustix::fs::fstatvfs(&self.fd).ok()?;
        // Some file systems do not say.
        (stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        self.check(Op::Unlink, name)?;
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
            .map_err(|errno| self.failed(Op::Unlink, name, errno))
    }

    fn sync(&self) -> Result<()> {
        refuse_if_forked(Op::SyncDir, &self.path)?;
        system::sync_all(&self.fd).map_err(|errno| failed(Op::SyncDir, &self.path, errno))
    }

    fn list(&self) -> Result<Vec<String>> {
        refuse_if_forked(Op::List, &self.path)?;
        let wrap = |errno| failed(Op::List, &self.path, errno);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd).map_err(wrap)? {
            let entry = entry.map_err(wrap)?;
            let name = entry.file_name().to_string_lossy();
            if !matches!(&*name, "." | "..") {
                names.push(name.into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(self.open_below(name)?))
    }

    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(self.create_below(name)?))
    }

    fn readable_as(&self, name: &str) -> Result<()> {
        self.check(Op::Open, name)?;
        let stat = match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            stat => stat.map_err(|errno| self.failed(Op::Open, name, errno))?,
        };
        let mode = Mode::from_raw_mode(stat.st_mode);
        let readers = [(Mode::ROTH, Readers::All), (Mode::RGRP, Readers::Group)];
        let found = readers.into_iter().find(|(bit, _)| mode.contains(*bit));
        if let Some((_, found)) = found {
            let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
            *readers = found.max(*readers);
        }
        Ok(())
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        refuse_if_forked(Op::Lock, &self.path)?;
        let wrap = |errno| failed(Op::Lock, &self.path, errno);
        if self.locked.swap(true, SeqCst) {
            return Err(wrap(Errno::WOULDBLOCK));
        }
        let (held, locked) = (Arc::clone(&self.fd), Arc::clone(&self.locked));
        match rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Box::new(StdLock { held, locked })),
            Err(errno) => {
                self.locked.store(false, SeqCst);
                Err(wrap(errno))
            }
        }
    }

    fn read_each(&self, reads: &mut [Read<'_>]) -> Vec<Result<usize>> {
        read_each(reads)
    }

    fn facts(&self) -> Result<Facts> {
        refuse_if_forked(Op::Open, &self.path)?;
        let device = self.device();
        if device.is_some() && self.all_modes_work.get() == device.as_ref() {
            return Ok(Facts::new("std", true, true));
        }
        let direct = probe::works(self, OpenMode::create_new().direct(true));
        let dsync = probe::works(self, OpenMode::create_new().dsync(true));
        if let (true, true, Some(device)) = (direct, dsync, device) {
            // "No" may be the answer of a full disk, and is asked again.
            let _ = self.all_modes_work.set(device);
        }
        Ok(Facts::new("std", direct, dsync))
    }
}

/// The owner of a directory, where this process is root and does not own it.
fn other_owner(dir: &OwnedFd) -> Option<(Uid, Gid)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let stat = rustix::fs::fstat(dir).ok()?;
    let user = Uid::from_raw(stat.st_uid);
    (!user.is_root()).then(|| (user, Gid::from_raw(stat.st_gid)))
}

fn kind_of(stat: &rustix::fs::Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::std_disk::StdDisk;

    /// Between fork and exec, a child process holds copies of all descriptors.
    #[test]
    fn a_dropped_lock_is_free_also_while_a_copy_of_its_descriptor_is_open() {
        let workdir = tempfile::tempdir().unwrap();
        let dir = StdDisk::new().open_std_dir(workdir.path()).unwrap();
        let held = dir.lock().unwrap();
        let _copy = dir.fd.try_clone().unwrap();
        let other = StdDisk::new().open_dir(workdir.path()).unwrap();
        other.lock().unwrap_err();
        drop(held);
        drop(other.lock().unwrap());
        dir.lock().unwrap();
    }

    /// In a directory where neither mode works, what is known of the device decides.
    #[test]
    fn what_a_probe_found_is_known_for_the_same_device_only() {
        let proc = StdDisk::new().open_std_dir("/proc/self".as_ref()).unwrap();
        let none = Facts::new("std", false, false);
        assert_eq!(proc.facts().unwrap(), none);
        assert_eq!(proc.all_modes_work.get(), None, "a full disk gives the same answer");
        let elsewhere = proc.device().unwrap() + 1;
        proc.all_modes_work.set(elsewhere).unwrap();
        assert_eq!(proc.facts().unwrap(), none);
        let mut below = proc.open_below("task").unwrap();
        assert_eq!(below.all_modes_work.get(), Some(&elsewhere));
        below.all_modes_work = Arc::new(OnceLock::from(below.device().unwrap()));
        assert_eq!(below.facts().unwrap(), Facts::new("std", true, true));
    }

    /// Its owner could not open it: the offsets of a log, for instance, that root set.
    #[test]
    fn what_root_creates_belongs_to_the_owner_of_the_directory() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: needs root");
            return;
        }
        let workdir = tempfile::tempdir().unwrap();
        let owner = (Uid::from_raw(65_534), Gid::from_raw(65_533));
        rustix::fs::chown(workdir.path(), Some(owner.0), Some(owner.1)).unwrap();
        let dir = StdDisk::new().open_std_dir(workdir.path()).unwrap();
        let owner_of = |path: &Path| {
            let stat = rustix::fs::stat(path).unwrap();
            (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid))
        };
        dir.open_file("a", OpenMode::create()).unwrap();
        dir.open_file("b", OpenMode::create_new()).unwrap();
        dir.create_below("c").unwrap().open_file("d", OpenMode::create()).unwrap();
        for created in ["a", "b", "c", "c/d"] {
            assert_eq!(owner_of(&workdir.path().join(created)), owner, "{created}");
        }
        // What was there stays as it is.
        let before = (Uid::ROOT, Gid::ROOT);
        rustix::fs::chown(workdir.path().join("a"), Some(before.0), Some(before.1)).unwrap();
        dir.open_file("a", OpenMode::create()).unwrap();
        assert_eq!(owner_of(&workdir.path().join("a")), before);
    }

    /// Whichever handle has it, and also after the handle that took it was dropped.
    #[test]
    fn one_lock_at_a_time_is_taken() {
        let workdir = tempfile::tempdir().unwrap();
        let handle = || StdDisk::new().open_std_dir(workdir.path()).unwrap();
        let (one, other) = (handle(), handle());
        let held = one.lock().unwrap();
        for _ in 0..2 {
            assert_eq!(one.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert_eq!(other.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        drop(one);
        other.lock().unwrap_err();
        drop(held);
        let held = other.lock().unwrap();
        handle().lock().unwrap_err();
        drop(held);
        drop(handle().lock().unwrap());
    }

    #[test]
    fn an_open_file_does_not_keep_the_flag_that_kept_the_open_from_waiting() {
        let workdir = tempfile::tempdir().unwrap();
        let dir = StdDisk::new().open_std_dir(workdir.path()).unwrap();
        let direct = dir.facts().unwrap().direct;
        let file = dir.open_file("a", OpenMode::create().direct(direct).dsync(true)).unwrap();
        let flags = rustix::fs::fcntl_getfl(file.fd()).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
        assert_eq!(flags.contains(system::flags(OpenMode::read().direct(true)).unwrap()), direct);
    }
}
