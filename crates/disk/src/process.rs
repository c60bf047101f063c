//! The process that opened a handle, so that a child made by `fork` is recognised as another one.
//!
//! A child gets a copy of every handle: the descriptors, the lock of a directory, and all memory.
//! It gets none of the threads. What it writes, its parent overwrites, and the lock that it
//! releases is its parent's. So every handle stores the process that opened it, and refuses to work
//! in another one.
//!
//! # How a child is recognised
//!
//! The number of forks between the first process and this one, which a handler of `pthread_atfork`
//! raises in each child. Comparing two numbers needs no system call. Linux and macOS have the
//! handler. `vfork`, `posix_spawn` and a system call past the C library do not run it: a child made
//! by those has to call `exec`.
//!
//! # Why the unsafe code is sound
//!
//! * The handler is a function of this crate that lives as long as the code that calls it. It adds
//!   to an atomic number and does nothing else, which is allowed after `fork` in a process with
//!   threads.
//! * The pointer of a [`PerProcess`] is null, or comes from `Box::into_raw` and is never freed. So
//!   a reference to what it points to stays valid.

#![allow(unsafe_code)]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use rustix::process::Pid;

/// The forks between the first process and this one. On cache lines of its own, which only a fork
/// changes: every append reads it.
#[derive(Debug)]
#[repr(align(128))]
struct Forks(AtomicU64);

static FORKS: Forks = Forks(AtomicU64::new(0));
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

extern "C" fn count_in_child() {
    FORKS.0.fetch_add(1, Ordering::Relaxed);
}

/// A process, which the children that `fork` makes of it are not. The default is a process that
/// `fork` did not make.
///
/// # Examples
/// ```
/// let opened_by = esker_disk::Process::current()?;
/// assert!(opened_by.is_current()); // and `false` in a child
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Process(u64);

impl Process {
    /// Returns this process.
    ///
    /// # Errors
    /// An error of the system when it cannot register the handler that recognises children.
    pub fn current() -> io::Result<Self> {
        // Two threads may both register it. A child then counts twice, which is as good as once.
        if !IS_REGISTERED.load(Ordering::Acquire) {
            // SAFETY: the handler may run in any child, as the module docs show.
            let error = unsafe { libc::pthread_atfork(None, None, Some(count_in_child)) };
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            IS_REGISTERED.store(true, Ordering::Release);
        }
        Ok(Self(FORKS.0.load(Ordering::Relaxed)))
    }

    /// Returns whether this process is that one. One relaxed load.
    #[inline]
    pub fn is_current(self) -> bool {
        FORKS.0.load(Ordering::Relaxed) == self.0
    }

    /// Returns whether a process with this number runs, as far as this process may know. One that
    /// has ended and was not yet waited for does not.
    pub fn is_running(pid: u32) -> bool {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
        match rustix::process::test_kill_process(raw) {
            Ok(()) | Err(rustix::io::Errno::PERM) => !is_zombie(pid),
            Err(_) => false,
        }
    }
}

/// Whether the process has ended. Only Linux shows it.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in parentheses and may hold any character.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// A value that each process makes for itself, such as threads, which a child lacks. For statics:
/// what it holds is never dropped.
#[derive(Debug)]
pub struct PerProcess<T>(AtomicPtr<(Process, T)>);

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// Returns one without a value.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value of this process, and makes it if there is none. Takes no lock, which a
    /// thread might have held when this process was forked. Threads that call it at the same time
    /// may each make one; all get the same.
    ///
    /// # Errors
    /// The errors of `make`, and of [`Process::current`].
    pub fn get_or_try_init(&self, make: impl FnOnce() -> io::Result<T>) -> io::Result<&T> {
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: null, or from `Box::into_raw` and never freed.
        if let Some((_, value)) = unsafe { found.as_ref() }.filter(|made| made.0.is_current()) {
            return Ok(value);
        }
        let made = Box::into_raw(Box::new((Process::current()?, make()?)));
        // That of a parent stays where it is: its threads are not here to be ended.
        match self.0.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: from `Box::into_raw`, and from here on never freed.
            Ok(_) => Ok(&unsafe { &*made }.1),
            Err(first) => {
                // SAFETY: from `Box::into_raw` above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: not null, as another thread has replaced what was found.
                Ok(&unsafe { &*first }.1)
            }
        }
    }
}

impl<T: Send + Sync + 'static> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_get_the_value_of_one() {
        static VALUE: PerProcess<Box<u64>> = PerProcess::new();
        assert!(VALUE.get_or_try_init(|| Err(io::ErrorKind::OutOfMemory.into())).is_err());
        let get =
            |n| move || std::ptr::from_ref(VALUE.get_or_try_init(|| Ok(Box::new(n))).unwrap());
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || get(n)() as usize)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|value| *value == all[0]), "{all:?}");
    }

    #[test]
    fn a_process_that_ended_does_not_run_although_no_one_waited_for_it() {
        assert!(Process::is_running(std::process::id()));
        assert!(!Process::is_running(0) && !Process::is_running(u32::MAX));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while cfg!(target_os = "linux") && Process::is_running(child.id()) {
            assert!(std::time::Instant::now() < deadline, "it still runs");
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
