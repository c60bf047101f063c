//! Engines whose threads are pinned to one processor.
//!
//! On Linux a thread inherits the affinity of the thread that starts it. So an engine is pinned by
//! starting it from a pinned thread: the engine itself is unaware of it, and no commit thread ever
//! runs elsewhere. The threads that read from files for tasks start later, with the first such
//! read, and run where the task may: they wait for the disk, and a commit should not wait for them.

use std::io;

use esker_disk::process;

use crate::runtime::engine::Engine;

impl Engine {
    /// An engine as [`Engine::new`] creates it, whose threads run on this processor only, counted
    /// from 0. The threads that read from files for tasks are not pinned; they start with the first
    /// such read.
    ///
    /// # Errors
    /// `InvalidInput` when there is no such processor, or this process may not use it.
    /// `Unsupported` on systems other than Linux. Otherwise as [`Engine::new`].
    pub fn pinned(threads: usize, processor: usize) -> io::Result<Self> {
        process::register()?;
        let starter = std::thread::Builder::new().name("esker-start".into());
        let started = starter.spawn(move || {
            imp::stay_on(processor)?;
            Engine::new(threads)
        })?;
        started.join().unwrap_or_else(|_| Err(io::Error::other("the engine was not started")))
    }
}

/// Whether this process may run on the processor with this number.
pub(crate) fn may_use(processor: usize) -> bool {
    imp::may_use(processor)
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    pub(super) fn may_use(processor: usize) -> bool {
        processor < CpuSet::MAX_CPU
            && sched_getaffinity(None).is_ok_and(|allowed| allowed.is_set(processor))
    }

    pub(super) fn stay_on(processor: usize) -> io::Result<()> {
        if !may_use(processor) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut one = CpuSet::new();
        one.set(processor);
        Ok(sched_setaffinity(None, &one)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;

    pub(super) fn may_use(_: usize) -> bool {
        false
    }

    pub(super) fn stay_on(_: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
