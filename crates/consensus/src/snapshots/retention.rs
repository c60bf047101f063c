//! Dropping entries and older snapshots under a newer one.

use esker_disk::planted::{Bug, is_planted};
use esker_log::InvalidOption;

use crate::base::slot::{Slot, SnapshotBounds};
use crate::errors::protocol_errors::TruncateError;
use crate::errors::snapshot_errors::SnapshotError;
use crate::protocol::floor::FloorTicket;
use crate::snapshots::stored::Snapshots;
use crate::storage_error::StorageError;

impl Snapshots {
    /// Drops the entries up to this slot, durably, if a snapshot that is whole covers them: reads
    /// back the newest one at or after the slot. Returns the slot of that snapshot. Blocks.
    ///
    /// To fall back to an older snapshot, should the newest be damaged, takes the entries after the
    /// older one: truncate through the oldest snapshot that you keep.
    ///
    /// # Durability
    /// As [`truncate_before`](crate::ConsensusLog::truncate_before).
    ///
    /// # Errors
    /// [`SnapshotError::NoSnapshot`] or [`SnapshotError::CorruptedSnapshot`] when no snapshot that
    /// is whole covers the slot, and [`SnapshotError::Gap`] when a slot up to it is not committed:
    /// nothing was dropped. [`SnapshotError::Storage`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot, SnapshotError};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # log.learn(Slot(0), Ballot { number: 1, node: 7 }, b"+1")?.blocking_wait()?;
    /// let refused = log.snapshots().truncate_through(Slot(0));
    /// assert!(matches!(refused, Err(SnapshotError::NoSnapshot)));
    /// log.snapshots().create(Slot(0), &b"the sum is 1"[..])?;
    /// log.snapshots().keep(2)?;
    /// log.snapshots().truncate_through(Slot(0))?;
    /// assert_eq!(log.floor(), Some(Slot(0)));
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn truncate_through(&self, slot: Slot) -> Result<Slot, SnapshotError> {
        self.log.inner.refuse_if_not_writable()?;
        if is_planted(Bug::CoveringSnapshotNotRead)
            && let Some(covering) = self.list()?.pop().filter(|at| *at >= slot)
        {
            self.raised(self.log.truncate_before(slot.next()))?.blocking_wait()?;
            return Ok(covering);
        }
        let covering = self.files().newest(|at| at >= slot)?;
        debug_assert!(covering.slot() >= slot, "the snapshot does not cover the slot");
        self.raised(self.log.truncate_before(slot.next()))?.blocking_wait()?;
        Ok(covering.slot())
    }

    /// The outcome of raising the floor under a snapshot.
    pub(super) fn raised(
        &self,
        outcome: Result<FloorTicket, TruncateError>,
    ) -> Result<FloorTicket, SnapshotError> {
        outcome.map_err(|error| match error {
            TruncateError::Gap { slot } => SnapshotError::Gap { slot },
            TruncateError::Truncated { floor } => SnapshotError::Truncated { floor },
            TruncateError::SlotOutOfRange { slot, limit } => {
                SnapshotError::SlotOutOfRange { slot, limit }
            }
            TruncateError::Storage(error) => error.into(),
            TruncateError::BelowFrontier { .. } | TruncateError::EntryTooLarge { .. } => {
                self.log.inner.broken("raising the floor drops no entry above it").into()
            }
        })
    }

    /// Removes the oldest snapshots, durably, so that the newest `count` that are whole are kept;
    /// reads these to find out. Those that are not whole count for nothing: one that is newer
    /// stays, so that its readers get its error. Returns the slots of those that were removed.
    /// Blocks. While a backup copies the logs of a manager, removes nothing.
    ///
    /// # Errors
    /// [`SnapshotError::InvalidOption`] for a count of 0; [`SnapshotError::Storage`], after which
    /// some of them may be removed.
    pub fn keep(&self, count: usize) -> Result<Vec<Slot>, SnapshotError> {
        InvalidOption::unless(count > 0, "count", "at least 1")
            .map_err(SnapshotError::InvalidOption)?;
        self.log.inner.refuse_if_not_writable()?;
        let Some(_no_backup) = self.log.inner.reclaiming.try_removal() else {
            return Ok(Vec::new());
        };
        let (all, files) = (self.list()?, self.files());
        let (mut whole, mut oldest_kept) = (0, None);
        for slot in all.iter().rev() {
            match files.whole(*slot) {
                Ok(Some(_)) => whole += 1,
                Err(_) if is_planted(Bug::CorruptSnapshotCounts) => whole += 1,
                Ok(None) | Err(SnapshotError::CorruptedSnapshot { .. }) => {}
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
            let outcome = self.log.inner.log.snapshots().remove(slot.0);
            outcome.map_err(StorageError::from_log)?;
            removed.push(slot);
        }
        Ok(removed)
    }

    /// Moves floor and frontier forward over a gap, under a snapshot that is verified and durable,
    /// here or elsewhere. Neither ever moves back.
    ///
    /// # Durability
    /// Both are durable when the ticket has resolved.
    ///
    /// # Errors
    /// [`TruncateError::Gap`] when the frontier is below the floor;
    /// [`TruncateError::SlotOutOfRange`], [`TruncateError::Storage`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{ConsensusLog, Error};
    /// use esker_consensus::{Slot, SnapshotBounds};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// // The snapshot has slots 0 to 99, so this log needs none of them.
    /// let bounds = SnapshotBounds { floor: Slot(99), frontier: Slot(99) };
    /// log.snapshots().install(bounds)?.blocking_wait()?;
    /// assert_eq!((log.floor(), log.frontier()), (Some(Slot(99)), Some(Slot(99))));
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn install(&self, bounds: SnapshotBounds) -> Result<FloorTicket, TruncateError> {
        self.log.inner.install(bounds, None)
    }
}
