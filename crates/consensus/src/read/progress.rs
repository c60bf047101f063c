//! The frontier, the floor and the last slot of a log.

use crate::base::slot::Slot;
use crate::state::commit_tracker::CommittedRange;
use crate::state::inner::{ConsensusLog, Inner};

impl ConsensusLog {
    /// The highest slot that has an entry, accepted or committed, durable or not: where Raft's log
    /// ends. `None` if no slot above the floor has one. Costs a scan of one page of the index.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.accept(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// // After opening, its ballot has the term of the last entry.
    /// if let Some(last) = log.last_slot() {
    ///     assert_eq!(log.read(last, &log.pin())?.ballot(), ballot);
    /// }
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn last_slot(&self) -> Option<Slot> {
        let guard = crossbeam_epoch::pin();
        self.inner.count_durable(&guard);
        let accepted = self.inner.last_uncommitted(&guard);
        let committed = self.inner.frontier.lock().range_with_pending();
        accepted.max(committed.map(|range| range.highest.0)).map(Slot)
    }

    /// The frontier: this slot and every one below it is durably committed, or was truncated.
    /// `None` if the first slot is not.
    pub fn frontier(&self) -> Option<Slot> {
        self.inner.last_decided().map(Slot)
    }

    /// Slots up to this one were durably truncated. `None` when none was.
    pub fn floor(&self) -> Option<Slot> {
        self.inner.count_durable(&crossbeam_epoch::pin());
        self.inner.frontier.lock().kept().checked_sub(1).map(Slot)
    }
}

impl Inner {
    /// The durably committed slots; `None` if there are none. The cost does not depend on their
    /// number.
    pub(crate) fn committed_range(&self) -> Option<CommittedRange> {
        self.count_durable(&crossbeam_epoch::pin());
        self.frontier.lock().range()
    }
}
