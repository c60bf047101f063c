//! How far the log is decided, and what it retains.

use crate::base::slot::Slot;
use crate::state::commit_tracker::CommittedRange;
use crate::state::inner::ConsensusLog;

impl ConsensusLog {
    /// The lowest and highest committed slot, and the number of committed slots; `None` if there
    /// are none. The cost does not depend on that number.
    pub fn committed_range(&self) -> Option<CommittedRange> {
        self.inner.count_durable(&crossbeam_epoch::pin());
        self.inner.tracker.lock().range()
    }

    /// The frontier: this slot and every one below it is durably committed, or was truncated.
    /// `None` if the first slot is not.
    pub fn frontier(&self) -> Option<Slot> {
        self.inner.frontier().map(Slot)
    }

    /// Slots up to this one were durably truncated. `None` when none was.
    pub fn floor(&self) -> Option<Slot> {
        self.inner.count_durable(&crossbeam_epoch::pin());
        self.inner.tracker.lock().kept().checked_sub(1).map(Slot)
    }
}
