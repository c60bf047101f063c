//! What background reclaiming did so far.

use std::sync::atomic::AtomicU64;

use esker_log::reclaim::Reclaimed;
use parking_lot::Mutex;

/// What was reclaimed since the log was opened.
#[derive(Debug, Default)]
pub(crate) struct Reclaiming {
    /// Held during a pass.
    pub(crate) pass: Mutex<()>,
    pub(crate) done: Mutex<Reclaimed>,
    /// The newest record when the last piece of work ended.
    pub(crate) newest: AtomicU64,
}

impl Reclaiming {
    pub(crate) fn done(&self) -> Reclaimed {
        *self.done.lock()
    }
}
