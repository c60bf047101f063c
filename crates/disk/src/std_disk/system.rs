//! What differs between Linux and macOS.
//!
//! On macOS `fsync` leaves the bytes in the cache of the drive and `O_DSYNC` does no better, so every
//! promise there is kept by `F_FULLFSYNC`. It has no `O_DIRECT`, and that is told as an error.

use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::{Errno, Result};

use crate::Open;

/// How often a read or write that a signal cut off is begun again.
pub(super) const INTERRUPTIONS: u32 = 64;

/// Calls again while a signal cuts the call off before it did anything.
pub(super) fn uninterrupted<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..INTERRUPTIONS {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
    call()
}

#[cfg(target_os = "linux")]
mod imp {
    use super::{OFlags, Open, OwnedFd, Result};

    /// rustix takes O_DSYNC for O_SYNC, which makes the times of the file durable too, at each write.
    const DSYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC.cast_unsigned());

    pub(in super::super) fn flags(how: Open) -> Result<OFlags> {
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
    use super::{Errno, OFlags, Open, OwnedFd, Result};

    pub(in super::super) fn flags(how: Open) -> Result<OFlags> {
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
