//! Dropping what a snapshot makes superfluous: entries, and older snapshots.

use esker_disk::planted::{Bug, is_planted};

use crate::base::slot::Slot;
use crate::outcome::{Error, Result};
use crate::snapshots::stored::Snapshots;
use crate::state::inner::ConsensusLog;

impl ConsensusLog {
    /// Drops the entries up to this slot, durably, if a snapshot that is whole covers them: reads
    /// back the newest one at or after the slot. Returns the slot of that snapshot. Blocks.
    ///
    /// To fall back to an older snapshot, should the newest be damaged, takes the entries after the
    /// older one: truncate through the oldest snapshot that you keep.
    ///
    /// # Durability
    /// As [`ConsensusLog::truncate_before`].
    ///
    /// # Errors
    /// [`Error::NoSnapshot`] or [`Error::CorruptedSnapshot`] when no snapshot that is whole covers
    /// the slot: nothing was dropped. As [`ConsensusLog::truncate_before`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # log.learn(Slot(0), Ballot { number: 1, node: 7 }, b"+1")?.blocking_wait()?;
    /// assert!(matches!(log.truncate_through(Slot(0)), Err(Error::NoSnapshot)));
    /// log.create_snapshot(Slot(0), &b"the sum is 1"[..])?;
    /// log.keep_snapshots(2)?;
    /// log.truncate_through(Slot(0))?;
    /// assert_eq!(log.floor(), Some(Slot(0)));
    /// # log.close()
    /// # }
    /// ```
    pub fn truncate_through(&self, slot: Slot) -> Result<Slot> {
        let snapshots = self.writable_snapshots()?;
        if is_planted(Bug::CoveringSnapshotNotRead)
            && let Some(covering) = snapshots.list()?.pop().filter(|at| *at >= slot)
        {
            return self.truncate_before(slot.next()).map(|()| covering);
        }
        let covering = snapshots.newest(|at| at >= slot)?;
        self.truncate_before(slot.next())?;
        Ok(covering.slot())
    }

    /// Removes the oldest snapshots, durably, so that the newest `count` that are whole are kept;
    /// reads these to find out. Those that are not whole count for nothing: one that is newer
    /// stays, so that its readers get its error. Returns the slots of those that were removed.
    /// Blocks. While a backup copies the logs of a manager, removes nothing.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a count of 0; [`Error::Log`], after which some of them may be
    /// removed; [`Error::ReadOnly`], [`Error::Closed`].
    pub fn keep_snapshots(&self, count: usize) -> Result<Vec<Slot>> {
        if count == 0 {
            return Err(Error::InvalidOption { option: "count", rule: "at least 1" });
        }
        let snapshots = self.writable_snapshots()?;
        let Some(_no_backup) = self.inner.removals.try_read() else {
            return Ok(Vec::new());
        };
        let all = snapshots.list()?;
        let (mut whole, mut oldest_kept) = (0, None);
        for slot in all.iter().rev() {
            match snapshots.whole(*slot) {
                Ok(Some(_)) => whole += 1,
                Err(_) if is_planted(Bug::CorruptSnapshotCounts) => whole += 1,
                Ok(None) | Err(Error::CorruptedSnapshot { .. }) => {}
                Err(error) => return Err(error),
            }
            if whole == count {
                oldest_kept = Some(*slot);
                break;
            }
        }
        let superfluous = |slot: &Slot| oldest_kept.is_some_and(|kept| *slot < kept);
        let mut removed = Vec::new();
        for slot in all.into_iter().take_while(superfluous) {
            self.inner.log.snapshots().remove(slot.0)?;
            removed.push(slot);
        }
        Ok(removed)
    }

    /// The snapshots, if the log may be written.
    fn writable_snapshots(&self) -> Result<Snapshots> {
        self.inner.refuse_if_not_writable()?;
        Ok(self.snapshots())
    }
}
