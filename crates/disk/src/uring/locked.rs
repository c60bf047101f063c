//! Errors for the limit on locked memory, with the name of the limit.
//!
//! The kernel counts registered buffers, and on older kernels the ring itself, against the limit on
//! locked memory. It reports only that there is no memory.

use std::io;

use rustix::process::{Resource, getrlimit};

/// Adds the limit to the error, if the limit caused it.
pub(super) fn named(why: io::Error, registered: usize) -> io::Error {
    if why.kind() != io::ErrorKind::OutOfMemory {
        return why;
    }
    let limit = getrlimit(Resource::Memlock).current;
    let limit = limit.map_or("unlimited".into(), |bytes| format!("{bytes} bytes"));
    let what = match registered {
        0 => "a ring of io_uring".into(),
        bytes => format!("{bytes} bytes of buffers registered with io_uring"),
    };
    let reported = format!(
        "{why}: {what} have no room under the limit on locked memory, RLIMIT_MEMLOCK, which is {limit}; \
         raise it with `ulimit -l` or in /etc/security/limits.conf"
    );
    io::Error::new(io::ErrorKind::OutOfMemory, reported)
}
