//! Eviction: closing the logs that were not used for the longest time, to make room.

use std::sync::Arc;

use esker_disk::planted::{Bug, is_planted};

use crate::manager::log_guard::OpenLog;
use crate::manager::open_log_table::Claim;
use crate::manager::open_manager::ManagerInner;
use crate::storage_error::StorageError;

/// The most times that another thread takes the log that was to be closed, before the limit on open
/// logs gives way.
const EVICTION_RACES_MAX: u32 = 16;

impl ManagerInner {
    /// Closes idle logs until no more are open than the limit, or none is idle.
    pub(super) fn make_room(&self) {
        let mut lost = 0;
        while self.logs.count() > self.max_open && lost < EVICTION_RACES_MAX {
            let Some(key) = self.logs.least_recently_used() else { return };
            match self.logs.claim_idle(&key) {
                Some(Ok((claim, open))) => {
                    if !close_idle(claim, open) {
                        return;
                    }
                }
                // Another thread has taken it since.
                Some(Err(_)) | None => lost += 1,
            }
        }
    }
}

/// Closes a log that no caller uses, to make room. An error of that is for its next opening, not
/// for this caller. Returns `false` for a log with values that only memory has, and that the full
/// disk has no room for: it stays open, because closing it would lose them.
fn close_idle(claim: Claim<'_>, open: Arc<OpenLog>) -> bool {
    if is_planted(Bug::MakingRoomForgets) {
        let _ = open.log.inner.log.close();
    }
    match open.log.inner.save_uncommitted() {
        Err(error) if error.is_no_space() => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                key = %open.key.escape_ascii(),
                "an idle log stays open: what it accepted cannot be made durable"
            );
            claim.keep_open(open);
            return false;
        }
        // Closing has the same error.
        Ok(()) | Err(_) => {}
    }
    match open.log.close() {
        Ok(()) | Err(StorageError::Closed) => {}
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            key = %open.key.escape_ascii(),
            "an idle log was not closed cleanly"
        ),
    }
    drop(open);
    drop(claim);
    true
}
