//! The progress of background reclaiming.

use std::sync::atomic::AtomicU64;

use esker_log::reclaim::Reclaimed;
use parking_lot::Mutex;

/// The space reclaimed since the log was opened.
#[derive(Debug, Default)]
pub(crate) struct Reclaiming {
    /// Held during a pass.
    pub(crate) pass: Mutex<()>,
    pub(crate) done: Mutex<Reclaimed>,
    /// The newest record when the last step of a pass ended.
    pub(crate) newest: AtomicU64,
}

impl Reclaiming {
    pub(crate) fn done(&self) -> Reclaimed {
        *self.done.lock()
    }
}
