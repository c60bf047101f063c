//! Children that `fork` makes of a process that uses Esker, and whether a process runs.
//!
//! A child gets a copy of every handle: the descriptors, the lock of a directory, and all memory.
//! It gets none of the threads. What it writes, its parent overwrites, and the lock that it
//! releases is its parent's. So it may use nothing that its parent opened.
//!
//! It may open nothing either. A lock that a thread of the parent held stays held. And the locks of
//! the process share one table of waiting threads, whose entries are in the stacks of those
//! threads: in a child they name memory that its own threads use. So each opening asks
//! [`register`] first, and each call on a handle that may fail [`is_forked`], before they take a
//! lock.
//!
//! # How a child is recognised
//!
//! By a flag that a handler of `pthread_atfork` sets in each child. The handler is registered
//! before the first handle of the process exists. Linux and macOS have it. `vfork`, `posix_spawn`
//! and a system call past the C library do not run it: a child made by those has to call `exec`.
//! `exec` clears the flag, as all memory.
//!
//! # Why the unsafe code is sound
//!
//! The handler is a function of this crate that lives as long as the code that calls it. It stores
//! to an atomic flag and does nothing else, which is allowed after `fork` in a process with
//! threads.

#![allow(unsafe_code)]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Pid;

use crate::error::{Error, Op, Refusal, Result};

/// A flag on cache lines of its own, which only a fork changes: every append reads it.
#[derive(Debug)]
#[repr(align(128))]
struct Flag(AtomicBool);

static IS_FORKED: Flag = Flag(AtomicBool::new(false));
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

extern "C" fn mark_child() {
    IS_FORKED.0.store(true, Ordering::Relaxed);
}

/// Returns whether `fork` made this process of one that used Esker. One relaxed load.
#[inline]
pub fn is_forked() -> bool {
    IS_FORKED.0.load(Ordering::Relaxed)
}

/// Makes this process one that uses Esker, so that its children are recognised. Whatever opens a
/// directory or starts a thread calls it first. Takes no lock in a child.
///
/// # Errors
/// [`Refusal::Forked`] in a child of a process that used Esker; an error of
/// the system when it cannot register the handler that recognises children.
///
/// # Examples
/// ```
/// use esker_disk::process;
/// process::register()?;
/// assert!(!process::is_forked()); // and `true` in a child that is made from here on
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn register() -> io::Result<()> {
    if is_forked() {
        return Err(forked());
    }
    // Two threads may both register it. A child then sets the flag twice, which is as good as once.
    if !IS_REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handler may run in any child, as the module docs show.
        let error = unsafe { libc::pthread_atfork(None, None, Some(mark_child)) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        IS_REGISTERED.store(true, Ordering::Release);
    }
    Ok(())
}

/// Refuses an operation in a child of the process that opened the file or directory.
#[inline]
pub(crate) fn refuse_if_forked(op: Op, path: &Path) -> Result<()> {
    if is_forked() { Err(Error::new(op, path, None, forked())) } else { Ok(()) }
}

/// Returns [`Refusal::Forked`] as an error of the system.
#[cold]
fn forked() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, Refusal::Forked)
}

/// Returns whether a process with this number runs, as far as this process may know. One that has
/// ended and was not yet waited for does not. Numbers are those of the PID namespace of this
/// process.
pub fn is_running(pid: u32) -> bool {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    match rustix::process::test_kill_process(raw) {
        Ok(()) | Err(rustix::io::Errno::PERM) => !is_zombie(pid),
        Err(_) => false,
    }
}

/// Whether the process has ended. Only Linux shows it.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in parentheses and may hold any character.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_does_not_run_although_no_one_waited_for_it() {
        assert!(is_running(std::process::id()));
        assert!(!is_running(0) && !is_running(u32::MAX));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while cfg!(target_os = "linux") && is_running(child.id()) {
            assert!(std::time::Instant::now() < deadline, "it still runs");
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
