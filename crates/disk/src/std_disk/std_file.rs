//! An open file of the real disk.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::system;
use crate::aligned::check_direct;
use crate::error::{Error, Op, Result};
use crate::file::{File, OpenMode};
use crate::process::refuse_if_forked;

/// A file descriptor, its path and its open options.
#[derive(Debug)]
pub(crate) struct StdFile {
    fd: OwnedFd,
    path: PathBuf,
    how: OpenMode,
}

impl StdFile {
    pub(crate) fn new(fd: OwnedFd, path: PathBuf, how: OpenMode) -> Self {
        Self { fd, path, how }
    }

    #[cfg(all(target_os = "linux", feature = "io-uring"))]
    pub(crate) fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.fd)
    }

    fn failed(&self, op: Op, offset: Option<u64>, errno: Errno) -> Error {
        Error::new(op, &self.path, offset, io::Error::from(errno))
    }
}

impl File for StdFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        refuse_if_forked(Op::Read, &self.path)?;
        if self.how.direct {
            check_direct(Op::Read, &self.path, buf, offset)?;
        }
        system::uninterrupted(|| rustix::io::pread(&self.fd, &mut *buf, offset))
            .map_err(|errno| self.failed(Op::Read, Some(offset), errno))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        refuse_if_forked(Op::Write, &self.path)?;
        if self.how.direct {
            check_direct(Op::Write, &self.path, buf, offset)?;
        }
        let put = system::uninterrupted(|| rustix::io::pwrite(&self.fd, buf, offset))
            .map_err(|errno| self.failed(Op::Write, Some(offset), errno))?;
        if self.how.dsync {
            system::after_dsync_write(&self.fd)
                .map_err(|errno| self.failed(Op::Write, Some(offset), errno))?;
        }
        Ok(put)
    }

    fn sync_data(&self) -> Result<()> {
        refuse_if_forked(Op::Sync, &self.path)?;
        system::sync_data(&self.fd).map_err(|errno| self.failed(Op::Sync, None, errno))
    }

    fn len(&self) -> Result<u64> {
        refuse_if_forked(Op::Size, &self.path)?;
        let stat = rustix::fs::fstat(&self.fd).map_err(|e| self.failed(Op::Size, None, e))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        refuse_if_forked(Op::Size, &self.path)?;
        rustix::fs::ftruncate(&self.fd, len).map_err(|e| self.failed(Op::Size, Some(len), e))
    }

    fn preallocate(&self, offset: u64, len: u64) -> Result<()> {
        refuse_if_forked(Op::Size, &self.path)?;
        if len == 0 {
            return Ok(());
        }
        match system::reserve(&self.fd, offset, len) {
            // The errors of systems and file systems that cannot reserve space.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                let end = offset.checked_add(len);
                let end = end.ok_or_else(|| self.failed(Op::Size, Some(offset), Errno::FBIG))?;
                if self.len()? < end { self.set_len(end) } else { Ok(()) }
            }
            reserved => reserved.map_err(|e| self.failed(Op::Size, Some(offset), e)),
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.how.direct
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stderr)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::io::write_all_at;

    #[test]
    fn a_full_device() {
        let path = PathBuf::from("/dev/full");
        let Ok(fd) = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
            return eprintln!("SKIPPED: this system has no /dev/full");
        };
        let file = StdFile::new(fd, path, OpenMode::write());
        let error = write_all_at(&file, b"x", 0).unwrap_err();
        let full = Some(Errno::NOSPC.raw_os_error());
        assert_eq!((error.kind(), error.os_code()), (io::ErrorKind::StorageFull, full));
    }
}
