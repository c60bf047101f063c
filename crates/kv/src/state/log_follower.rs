//! How far a store that is open for reading has followed its log.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use esker_log::LogStream;
use parking_lot::Mutex;

use crate::index::keys::Keys;

/// How far a store has followed its log. By default, nothing of it was applied.
#[derive(Debug, Default)]
pub(crate) struct LogFollower {
    /// The last record that readers see. The index has all of its effects.
    applied: AtomicU64,
    /// Held while records are applied.
    pub(crate) following: Mutex<FollowCursor>,
}

#[derive(Debug, Default)]
pub(crate) struct FollowCursor {
    /// `None` after an error: the next one begins after the last record that readers see.
    pub(crate) stream: Option<LogStream>,
    /// The keyspaces by their numbers.
    pub(crate) keyspaces: HashMap<u32, Arc<Keys>>,
    /// Set while records are applied of which some were missed.
    pub(crate) catch_up: Option<CatchUp>,
}

/// The writer dropped records that were not applied yet. The state is complete at `end`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CatchUp {
    pub(crate) end: u64,
    /// The first record after those that were missed.
    pub(crate) oldest: Option<u64>,
}

impl LogFollower {
    pub(crate) fn new(applied: u64, following: FollowCursor) -> Self {
        Self { applied: AtomicU64::new(applied), following: Mutex::new(following) }
    }

    #[inline]
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(SeqCst)
    }

    pub(crate) fn set_applied(&self, seq: u64) {
        self.applied.store(seq, SeqCst);
    }
}
