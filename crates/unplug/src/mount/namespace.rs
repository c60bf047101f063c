//! A mount namespace that ends with this process.

use std::fs;
use std::io;

use anyhow::{Context, Result};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves this process into namespaces of its own. Must be called before it starts a thread.
///
/// # Errors
/// When the kernel or a container refuses. The message names what is missing.
pub fn enter() -> Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    let mut flags = UnshareFlags::NEWNS;
    if !uid.is_root() {
        flags |= UnshareFlags::NEWUSER;
    }
    unshare(flags).context(
        "this process may not make a mount namespace. Run as root, allow user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1), or in a container add --privileged or \
         --cap-add SYS_ADMIN --device /dev/fuse",
    )?;
    if flags.contains(UnshareFlags::NEWUSER) {
        fs::write("/proc/self/setgroups", "deny").context("/proc/self/setgroups")?;
        let (uid, gid) = (uid.as_raw(), gid.as_raw());
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).context("/proc/self/uid_map")?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).context("/proc/self/gid_map")?;
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("the mounts of this process cannot be made private")
}

#[allow(unsafe_code)]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags do not separate the table of file descriptors, so no descriptor that safe
    // code holds changes its meaning.
    unsafe { unshare_unsafe(flags) }.map_err(io::Error::from)
}
