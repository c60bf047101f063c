//! The reason why the log accepts no more records, for streams that have delivered all durable
//! ones.

use parking_lot::Mutex;

use crate::base::error::Terminal;

/// The terminal state. It is set before the watermark shows that the log stopped, so a stream that
/// sees the flag finds the reason here.
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
