//! Whether standard output was closed when the process began.
//!
//! Before `main`, Rust's runtime opens `/dev/null` in the place of a closed standard descriptor.
//! The output of a command would vanish there, and the command succeed. So the descriptor is
//! queried earlier, among the functions that run before the runtime.

#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::Errno;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section is the list of such functions. This one calls the kernel and stores a flag;
// it needs nothing that the runtime prepares.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
static QUERY: extern "C" fn() = query;

extern "C" fn query() {
    // SAFETY: the number is passed to one call, which changes nothing and reports a closed one.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    let is_closed = rustix::io::fcntl_getfd(stdout) == Err(Errno::BADF);
    WAS_CLOSED.store(is_closed, Relaxed);
}

/// The error of each write, if standard output was closed.
pub fn check() -> std::io::Result<()> {
    if WAS_CLOSED.load(Relaxed) { Err(Errno::BADF.into()) } else { Ok(()) }
}
