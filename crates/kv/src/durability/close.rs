//! Closing a store.

use crate::base::store_error::{StoreError, refuse_if_forked};
use crate::state::store_writer::StoreWriter;

impl StoreWriter {
    /// Ends background work, writes a checkpoint if one is due, and closes the log: everything
    /// accepted is durable then.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        refuse_if_forked()?;
        self.state().close();
        if let Some(thread) = self.cleaning().take_thread()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic has failed the store.
            let _panicked = thread.join();
        }
        self.checkpoint_at_close();
        self.log.close()?;
        Ok(self.state().health().check_invariants()?)
    }
}
