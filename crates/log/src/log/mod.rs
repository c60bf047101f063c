//! The handle to an open log, and its two halves.
//!
//! [`Log`] has a writing half and a reading half. They share the engine, the segments, the
//! tail cache, the watermark, the trim point, the terminal state, the closed flag and the wait
//! queues, and nothing else. The files in this folder hold the public methods, except those for
//! the author of a component, which are in `component`, and backups, which are in `backup`.

mod append;
pub(crate) mod builder;
mod close;
pub(crate) mod log_retention;
pub(crate) mod lookup;
mod metric_values;
pub(crate) mod metrics;
mod open;
#[cfg(feature = "metrics")]
mod publish;
pub(crate) mod sink;
pub(crate) mod snapshot_writer;
pub(crate) mod snapshots;
pub(crate) mod stats;
pub(crate) mod storage;

use std::sync::Arc;

use esker_disk::process;

use crate::commit::write_half::WriteHalf;
use crate::consumers::Consumers;
use crate::read::read_half::ReadHalf;
use crate::recovery::Recovery;

/// A durable, append-only log in a directory. Cheap to clone; all clones refer to the same log.
///
/// Dropping the last handle closes the log and blocks until it is closed. Call [`Log::close`] to
/// get the result. Clones and each [`Sink`](crate::Sink) are handles: a sink keeps the log open and
/// locked. A [`Ticket`](crate::Ticket), a [`LogStream`](crate::LogStream) and a
/// [`View`](crate::View) are not handles.
#[derive(Clone)]
pub struct Log {
    pub(crate) write: Arc<WriteHalf>,
    pub(crate) read: Arc<ReadHalf>,
    owner: Arc<Owner>,
}

/// Closes the log when the last handle is dropped.
struct Owner {
    write: Arc<WriteHalf>,
    read: Arc<ReadHalf>,
    recovery: Recovery,
    disk_name: &'static str,
    consumers: Consumers,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.write.fmt(f)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.close_or_warn();
        if process::is_forked() {
            // Another thread may have been changing what this would free.
            std::mem::forget((Arc::clone(&self.write), Arc::clone(&self.read)));
        }
    }
}

impl Log {
    /// Returns the named offsets of the log's consumers. No I/O.
    pub fn consumers(&self) -> Consumers {
        self.owner.consumers.clone()
    }
}
