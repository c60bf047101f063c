//! An open log: the handle, and what is composed in it.
//!
//! [`Log`] has a writing side and a reading side that share segments, tail, watermark, trim point and wait
//! queues, and nothing else. The files of this folder are its public methods.

mod app_metadata;
mod append;
mod close;
pub(crate) mod lookup;
mod open;
pub(crate) mod sink;
mod truncate;

use std::sync::Arc;

use crate::commit::write_half::WriteHalf;
use crate::read::read_half::ReadHalf;
use crate::recovery::Recovery;

/// A durable, append-only log in a directory. Cheap to clone; all clones are the same log.
///
/// The last handle to go closes the log and blocks while it does; call [`Log::close`] to see
/// whether that worked.
#[derive(Debug, Clone)]
pub struct Log {
    pub(crate) write: Arc<WriteHalf>,
    pub(crate) read: Arc<ReadHalf>,
    owner: Arc<Owner>,
}

/// Closes the log when the last handle goes.
#[derive(Debug)]
struct Owner {
    write: Arc<WriteHalf>,
    read: Arc<ReadHalf>,
    recovery: Recovery,
    disk_name: &'static str,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.close_or_warn();
    }
}

impl Log {
    /// How the log was found when it was opened, and what recovery did.
    pub fn recovery(&self) -> &Recovery {
        &self.owner.recovery
    }
}
