//! The progress of a store that is open for reading along its log.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use esker_log::LogStream;
use parking_lot::{Mutex, MutexGuard};

use crate::index::keyspace_keys::KeyspaceKeys;

/// The progress of a store along a log that another process writes. By default, nothing of the log
/// was applied.
#[derive(Debug, Default)]
pub(crate) struct LogFollower {
    /// The last record that readers see. The index has all of its effects.
    applied: AtomicU64,
    /// Held while records are applied.
    cursor: Mutex<FollowCursor>,
}

/// The state that applying records needs.
#[derive(Debug, Default)]
pub(crate) struct FollowCursor {
    /// `None` after an error: the next one begins after the last record that readers see.
    pub(crate) stream: Option<LogStream>,
    /// The keyspaces by their numbers.
    pub(crate) keyspaces: HashMap<u32, Arc<KeyspaceKeys>>,
    /// Set while records are applied of which some were missed.
    pub(crate) catch_up: Option<CatchUp>,
}

/// The end of applying records after the writer dropped some that were not applied yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CatchUp {
    /// The record at which the state is complete again.
    pub(crate) end: u64,
    /// The first record after those that were missed.
    pub(crate) oldest: Option<u64>,
}

impl LogFollower {
    pub(crate) fn new(applied: u64, cursor: FollowCursor) -> Self {
        Self { applied: AtomicU64::new(applied), cursor: Mutex::new(cursor) }
    }

    /// Keeps other threads from applying records.
    pub(crate) fn lock(&self) -> MutexGuard<'_, FollowCursor> {
        self.cursor.lock()
    }

    #[inline]
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(SeqCst)
    }

    /// Shows readers the records up to this one. The caller holds the lock.
    pub(crate) fn set_applied(&self, seq: u64) {
        let last = self.applied.swap(seq, SeqCst);
        debug_assert!(last <= seq, "readers never see fewer records than before");
    }
}
