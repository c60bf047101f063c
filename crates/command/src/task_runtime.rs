//! The runtime of a command that waits for nodes.

use std::io;
use std::os::unix::net::UnixStream;

use tokio::runtime::{Builder, Runtime};

use crate::exit::{Failure, Outcome};

/// Pairs of sockets that tokio opens for signals.
const SOCKET_PAIRS: usize = 4;

/// Creates a runtime that runs its tasks on this thread.
pub fn task_runtime() -> Outcome<Runtime> {
    // tokio panics where the process lacks files for its sockets: that is found out before.
    let sockets = (0..SOCKET_PAIRS).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>();
    let runtime = sockets.and_then(|_| Builder::new_current_thread().enable_all().build());
    runtime.map_err(|error| Failure::from_io("start a runtime", &error))
}
