//! A reference to an open log.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use crate::state::inner::ConsensusLog;

/// A log that is open.
#[derive(Debug)]
pub(super) struct OpenLog {
    pub(super) key: Arc<[u8]>,
    pub(super) log: ConsensusLog,
    /// When it was used last, counted in openings.
    pub(super) used: AtomicU64,
    /// Held while its state machine is initialised.
    pub(super) initialising: Mutex<()>,
}

/// A reference to an open log of a manager: the log is not closed as long as this exists. Dropping
/// it releases the reference, also while a thread panics.
///
/// A clone of the [`ConsensusLog`] is no reference. When the manager closes the log, the clone
/// returns [`StorageError::Closed`](crate::StorageError::Closed).
#[derive(Debug, Clone)]
pub struct LogGuard(pub(super) Arc<OpenLog>);

impl LogGuard {
    /// The key of the log.
    pub fn key(&self) -> &[u8] {
        &self.0.key
    }
}

impl Deref for LogGuard {
    type Target = ConsensusLog;

    #[inline]
    fn deref(&self) -> &ConsensusLog {
        &self.0.log
    }
}
