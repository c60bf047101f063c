//! Why the log takes no more records, for streams that have delivered all that is durable.

use parking_lot::Mutex;

use crate::base::error::Terminal;

/// Set before the watermark says that the log stopped, so whoever sees that finds the reason here.
#[derive(Debug, Default)]
pub(crate) struct TerminalCell(Mutex<Option<Terminal>>);

impl TerminalCell {
    pub(crate) fn set(&self, terminal: Option<&Terminal>) {
        *self.0.lock() = terminal.cloned();
    }

    pub(crate) fn get(&self) -> Option<Terminal> {
        self.0.lock().clone()
    }
}
