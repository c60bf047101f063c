//! Differences between Linux and macOS.
//!
//! On macOS `fsync` and `O_DSYNC` leave the bytes in the drive's cache, so durability uses
//! `F_FULLFSYNC`. macOS has no `O_DIRECT`; requesting it is an error.

use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::{Errno, Result};

use crate::file::OpenMode;

/// How often an interrupted read or write is retried.
pub(super) const INTERRUPTIONS_MAX: u32 = 64;

/// Retries the call while a signal interrupts it before it transferred anything.
pub(super) fn uninterrupted<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..INTERRUPTIONS_MAX {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
    call()
}

#[cfg(target_os = "linux")]
mod imp {
    use super::{OFlags, OpenMode, OwnedFd, Result};

    /// rustix maps O_DSYNC to O_SYNC, which also makes the file's times durable at each write.
    const DSYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC.cast_unsigned());

    pub(in super::super) fn flags(how: OpenMode) -> Result<OFlags> {
        let mut flags = OFlags::empty();
        flags.set(OFlags::DIRECT, how.direct);
        flags.set(DSYNC, how.dsync);
        Ok(flags)
    }

    pub(in super::super) fn sync_data(fd: &OwnedFd) -> Result<()> {
        rustix::fs::fdatasync(fd)
    }

    pub(in super::super) fn sync_all(fd: &OwnedFd) -> Result<()> {
        rustix::fs::fsync(fd)
    }

    pub(in super::super) fn after_dsync_write(_: &OwnedFd) -> Result<()> {
        Ok(())
    }

    pub(in super::super) fn reserve(fd: &OwnedFd, offset: u64, len: u64) -> Result<()> {
        super::uninterrupted(|| {
            rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::empty(), offset, len)
        })
    }
}

#[cfg(target_os = "macos")]
mod imp {
    use super::{Errno, OFlags, OpenMode, OwnedFd, Result};

    pub(in super::super) fn flags(how: OpenMode) -> Result<OFlags> {
        if how.direct { Err(Errno::INVAL) } else { Ok(OFlags::empty()) }
    }

    pub(in super::super) fn sync_data(fd: &OwnedFd) -> Result<()> {
        rustix::fs::fcntl_fullfsync(fd)
    }

    pub(in super::super) fn sync_all(fd: &OwnedFd) -> Result<()> {
        rustix::fs::fcntl_fullfsync(fd)
    }

    pub(in super::super) fn after_dsync_write(fd: &OwnedFd) -> Result<()> {
        rustix::fs::fcntl_fullfsync(fd)
    }

    pub(in super::super) fn reserve(_: &OwnedFd, _: u64, _: u64) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("esker-disk knows how to make bytes durable on Linux and macOS only");

pub(super) use imp::{after_dsync_write, flags, reserve, sync_all, sync_data};
