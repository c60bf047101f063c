//! Why the log takes no more records, for streams that have delivered all that is durable.

use parking_lot::Mutex;

use crate::base::error::Latch;

/// Set before the watermark says that the log stopped, so whoever sees that finds the reason here.
#[derive(Debug, Default)]
pub(crate) struct TerminalState(Mutex<Option<Latch>>);

impl TerminalState {
    pub(crate) fn set(&self, latch: Option<&Latch>) {
        *self.0.lock() = latch.cloned();
    }

    pub(crate) fn get(&self) -> Option<Latch> {
        self.0.lock().clone()
    }
}
