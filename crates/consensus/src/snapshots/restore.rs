//! Rebuilding a state machine from a snapshot and the entries after it.

use std::ops::ControlFlow;

use crate::base::slot::{Slot, SnapshotBounds};
use crate::errors::protocol_errors::ReadError;
use crate::errors::snapshot_errors::SnapshotError;
use crate::memory::entry::Entry;
use crate::read::iterate::IterateOptions;
use crate::snapshots::stored::{Snapshot, Snapshots};

/// The result of [`Snapshots::restore`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RestoreSummary {
    /// The slot of the snapshot; `None` if there is none.
    pub snapshot: Option<Slot>,
    /// Newer snapshots that are not whole, from the newest on.
    pub skipped: Vec<SnapshotError>,
    /// The number of entries after it.
    pub entries: u64,
    /// The slot that the state machine applies next.
    pub next: Slot,
}

impl Snapshots {
    /// Hands the newest snapshot that is whole to `on_snapshot`, and then, in order, each committed
    /// entry after it up to the frontier as of now to `on_entry`: everything that a state machine
    /// has to apply after a restart, each slot once. Entries that are committed meanwhile, or above
    /// a gap, are not among them; continue at [`RestoreSummary::next`]. Blocks.
    ///
    /// A snapshot beyond the frontier, which was received from another replica, also moves floor
    /// and frontier there: see [`Snapshots::install`].
    ///
    /// # Errors
    /// The first error of a callback, which ends it. [`SnapshotError::Truncated`] when entries that
    /// no whole snapshot covers were truncated, or [`SnapshotError::CorruptedSnapshot`] when a
    /// snapshot covers them that is not whole; [`SnapshotError::Storage`], for example for an entry
    /// that cannot be read.
    ///
    /// # Examples
    /// ```
    /// use std::io::Read;
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.learn(Slot(0), ballot, b"a")?.blocking_wait()?;
    /// # log.snapshots().create(Slot(0), &b"a"[..])?;
    /// # log.learn(Slot(1), ballot, b"b")?.blocking_wait()?;
    /// // A state machine that concatenates.
    /// let (mut state, mut more) = (String::new(), Vec::new());
    /// let restored = log.snapshots().restore::<Box<dyn std::error::Error>>(
    ///     |snapshot| Ok(snapshot.read_to_string(&mut state).map(drop)?),
    ///     |entry| Ok(more.extend_from_slice(entry.value())),
    /// )?;
    /// state.push_str(std::str::from_utf8(&more)?);
    /// assert_eq!((&*state, restored.next), ("ab", Slot(2)));
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn restore<E: From<SnapshotError>>(
        &self,
        on_snapshot: impl FnOnce(&mut Snapshot) -> Result<(), E>,
        mut on_entry: impl FnMut(&Entry<'_>) -> Result<(), E>,
    ) -> Result<RestoreSummary, E> {
        let (snapshot, skipped) = match self.latest() {
            Ok(mut snapshot) => {
                self.reach(snapshot.slot())?;
                on_snapshot(&mut snapshot)?;
                (Some(snapshot.slot()), snapshot.skipped().to_vec())
            }
            Err(SnapshotError::NoSnapshot) => (None, Vec::new()),
            Err(error @ SnapshotError::CorruptedSnapshot { .. }) => (None, vec![error]),
            Err(error) => return Err(error.into()),
        };
        let first = snapshot.map_or(Slot::ZERO, Slot::next);
        let mut restored = RestoreSummary { snapshot, skipped, entries: 0, next: first };
        if let Some(floor) = self.log.floor().filter(|floor| first <= *floor) {
            let corrupted = restored.skipped.into_iter().next();
            return Err(corrupted.unwrap_or(SnapshotError::Truncated { floor }).into());
        }
        let Some(last) = self.log.frontier().filter(|last| *last >= first) else {
            return Ok(restored);
        };
        let mut failed = None;
        let replayed = self.log.iterate(first..=last, IterateOptions::default(), |entry| {
            match on_entry(entry) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        let replayed = replayed.map_err(|error| match error {
            ReadError::Truncated { floor } => SnapshotError::Truncated { floor },
            ReadError::Storage(error) => error.into(),
            ReadError::SlotNotFound { .. }
            | ReadError::NotCommitted { .. }
            | ReadError::InvalidOffset { .. } => {
                self.log.inner.broken("an iteration skips slots without an entry").into()
            }
        })?;
        restored.entries = replayed.visited;
        restored.next = last.next();
        failed.map_or(Ok(restored), Err)
    }

    /// Moves floor and frontier to a snapshot that was received.
    fn reach(&self, slot: Slot) -> Result<(), SnapshotError> {
        if self.log.frontier().is_some_and(|frontier| frontier >= slot)
            || self.log.inner.status.read_only().is_some()
        {
            return Ok(());
        }
        let bounds = SnapshotBounds { floor: slot, frontier: slot };
        Ok(self.raised(self.install(bounds))?.blocking_wait()?)
    }
}
