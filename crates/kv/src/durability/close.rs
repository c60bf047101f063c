//! Closing a store.

use crate::base::error::{Result, refuse_if_forked};
use crate::state::writer::Writer;

impl Writer {
    /// Ends background work, writes a checkpoint if one is wanted, and closes the log: everything
    /// accepted is durable then.
    pub(crate) fn close(&self) -> Result<()> {
        refuse_if_forked()?;
        self.view.close();
        let thread = self.cleaning.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the cleaning thread panicked");
        }
        self.checkpoint_at_close();
        self.log.close()?;
        Ok(())
    }
}
