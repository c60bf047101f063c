//! The state of the application, stored beside promise and floor.

use std::sync::Arc;

use crate::base::slot::{Slot, SnapshotBounds};
use crate::errors::protocol_errors::TruncateError;
use crate::outcome::Ticket;
use crate::protocol::floor::FloorTicket;
use crate::state::inner::{ConsensusLog, Inner};

/// The state of the application: up to [`APP_STATE_LIMIT`](crate::APP_STATE_LIMIT) bytes of its
/// own that the log keeps beside promise and floor, for example the id of the last entry that Raft
/// purged. No truncation takes it away. From [`ConsensusLog::app_state`].
#[derive(Debug, Clone, Copy)]
pub struct AppState<'a> {
    inner: &'a Arc<Inner>,
}

impl ConsensusLog {
    /// The state of the application that is stored in the log.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.learn(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// log.app_state().set(b"nothing purged")?.blocking_wait()?;
    /// log.app_state().set_and_truncate_before(b"purged slot 0", Slot(1))?.blocking_wait()?;
    /// assert_eq!(*log.app_state().get(), *b"purged slot 0");
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn app_state(&self) -> AppState<'_> {
        AppState { inner: &self.inner }
    }
}

impl AppState<'_> {
    /// Returns the durable state; empty if there is none. May read an index page, as
    /// [`ConsensusLog::stats`].
    pub fn get(&self) -> Arc<[u8]> {
        self.inner.count_durable(&crossbeam_epoch::pin());
        self.inner.frontier.lock().app_state()
    }

    /// Replaces the state. It is durable when the ticket has resolved. Costs one record.
    ///
    /// # Errors
    /// [`TruncateError::EntryTooLarge`] above [`APP_STATE_LIMIT`](crate::APP_STATE_LIMIT) bytes;
    /// [`TruncateError::Storage`].
    pub fn set(&self, app_state: &[u8]) -> Result<Ticket, TruncateError> {
        self.inner.raise(0, 0, Some(app_state))
    }

    /// As [`ConsensusLog::truncate_before`], and replaces the state, in one record.
    ///
    /// # Errors
    /// As [`ConsensusLog::truncate_before`] and [`AppState::set`].
    pub fn set_and_truncate_before(
        &self,
        app_state: &[u8],
        slot: Slot,
    ) -> Result<FloorTicket, TruncateError> {
        self.inner.truncate_before(slot, Some(app_state))
    }

    /// As [`Snapshots::install`](crate::Snapshots::install), and replaces the state, in one record.
    ///
    /// # Errors
    /// As [`Snapshots::install`](crate::Snapshots::install) and [`AppState::set`].
    pub fn set_and_install(
        &self,
        app_state: &[u8],
        bounds: SnapshotBounds,
    ) -> Result<FloorTicket, TruncateError> {
        self.inner.install(bounds, Some(app_state))
    }
}
