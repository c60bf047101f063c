//! Limits on the process that io_uring meets: a filter that forbids it, and little locked memory.
//!
//! They hold for good, for this thread and those that it starts: a test that sets one has its
//! process to itself. The tests of the log include this file, too: the disk is below the testkit.
#![allow(dead_code)] // Each test binary uses its own part.
#![allow(clippy::unwrap_used)]

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Forbids io_uring with a seccomp filter.
pub fn forbid_io_uring() {
    let rules = [(libc::SYS_io_uring_setup, Vec::new())].into_iter().collect();
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let here = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, here).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// Limits the memory that may be locked. The kernel exempts a process that has the capability to
/// lock memory, so that is dropped, too.
pub fn limit_locked_memory(bytes: u64) {
    setrlimit(Resource::Memlock, Rlimit { current: Some(bytes), maximum: Some(bytes) }).unwrap();
    let mut mine = capabilities(None).unwrap();
    mine.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, mine).unwrap();
}
