//! Inspecting a consensus log without its lock, and without changing it.
//!
//! Inspection reads every record from the oldest on and uses no checkpoint. So it verifies
//! independently what opening a log recovers. It skips the ranges that `repair` quarantined. Its
//! memory is bounded, whatever the size of the log: see [`slot_windows`](super::slot_windows).

use std::collections::BTreeMap;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;
use std::sync::Arc;

use esker_disk::{Disk, StdDisk};
use esker_log::{ReadOptions, SeqRange};

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::component::{self, COPY_COMPONENT};
use crate::errors::manager_errors::OpenError;
pub use crate::read::record_totals::{InspectSummary, InvalidRecord, RecordCounts, SlotTotals};
use crate::read::slot_values::ValueReader;
use crate::read::slot_windows::{ReplayLimits, SlotWindows};
use crate::read_only::ReadOnlyReason;
use crate::storage_error::StorageError;

/// The state of a log, according to all its records; from [`inspect`].
#[derive(Debug)]
pub struct Inspection {
    /// The highest promised ballot; `None` if no record promises or accepts one.
    pub promised: Option<Ballot>,
    /// The state that the application stored last.
    pub app_state: Vec<u8>,
    /// Slots up to this one were truncated.
    pub floor: Option<Slot>,
    /// Slots up to this one are committed.
    pub frontier: Option<Slot>,
    /// The entries, counted. [`Inspection::visit`] visits them.
    pub totals: SlotTotals,
    /// Records read, by kind.
    pub records: RecordCounts,
    /// Records that are invalid or contradict earlier ones, in order: at most 1000 of them.
    pub invalid_records: Vec<InvalidRecord>,
    /// Ranges of records that `repair` quarantined: the last record before the range, and the last
    /// one in it. A slot that is missing after such a range may have been in it.
    pub quarantined: Vec<SeqRange>,
    /// Why it opens read-only; `None` for an ordinary log.
    pub read_only: Option<ReadOnlyReason>,
    /// One past the highest slot that a record shows to be committed, even if its value is lost.
    committed_end: u64,
    windows: SlotWindows,
}

/// Reads the durable records of the consensus log in `dir`, with or without a live writer. Blocks
/// until all are read.
///
/// Memory does not grow with the log: the entries of at most 131,072 slots are held at a time,
/// about 13 MB, besides the read cache. A log with more slots is read more than once: about twice
/// if its slots are in the order of its records, and at worst once for each 131,072 slots.
///
/// # Errors
/// [`OpenError::UnfinishedBackup`]; [`OpenError::Storage`] with [`StorageError::Log`] if there is
/// no log, if it is corrupt, or if it is a plain log or one of another component, and with
/// [`Trimmed`](esker_log::Error::Trimmed) when another process dropped records before they were
/// read again: call it again.
///
/// # Examples
/// ```
/// use esker_consensus::{ConsensusLog, inspect};
/// # use esker_consensus::{Ballot, Error, Slot};
/// # fn main() -> Result<(), Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("node-1");
/// # let log = ConsensusLog::open(&dir)?;
/// # log.learn(Slot(0), Ballot { number: 1, node: 7 }, b"layer on layer")?.blocking_wait()?;
/// // `log` is open, and has one committed slot.
/// let inspection = inspect(&dir)?;
/// assert_eq!(inspection.totals.committed, 1);
/// assert!(inspection.invalid_records.is_empty());
/// # Ok(log.close()?)
/// # }
/// ```
pub fn inspect(dir: impl AsRef<Path>) -> Result<Inspection, OpenError> {
    inspect_with(dir, |_| {})
}

/// As [`inspect`], and calls `progress` with the number of records read so far, often.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_with(
    dir: impl AsRef<Path>,
    mut progress: impl FnMut(u64),
) -> Result<Inspection, OpenError> {
    inspect_within(Arc::new(StdDisk::new()), dir.as_ref(), ReplayLimits::DEFAULT, &mut progress)
}

/// As [`inspect`], for a log on `disk`.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_on(disk: Arc<dyn Disk>, dir: impl AsRef<Path>) -> Result<Inspection, OpenError> {
    inspect_within(disk, dir.as_ref(), ReplayLimits::DEFAULT, &mut |_| {})
}

fn inspect_within(
    disk: Arc<dyn Disk>,
    dir: &Path,
    limits: ReplayLimits,
    progress: &mut dyn FnMut(u64),
) -> Result<Inspection, OpenError> {
    let (reader, component) = component::open_read_only(dir, ReadOptions::on(disk))?;
    let is_known = component.is_some();
    let is_repaired = reader.storage().was_repaired().map_err(StorageError::from_log)?;
    let read_only = ReadOnlyReason::from_origin(is_repaired, component == Some(COPY_COMPONENT));
    let (windows, found) = match SlotWindows::replay(reader, is_known, limits, progress) {
        // Neither app metadata nor records identify a consensus log: it is a plain log, maybe
        // empty.
        Err(StorageError::CorruptedRecord { .. }) => return Err(component::plain(dir)),
        Ok((_, found)) if !is_known && found.records == RecordCounts::default() => {
            return Err(component::plain(dir));
        }
        outcome => outcome?,
    };
    Ok(Inspection {
        promised: found.promised,
        app_state: found.app_state,
        floor: found.start.checked_sub(1).map(Slot),
        frontier: found.next.checked_sub(1).map(Slot),
        totals: found.slots,
        records: found.records,
        invalid_records: found.invalid_records,
        quarantined: found.quarantined,
        read_only,
        committed_end: found.committed_end,
        windows,
    })
}

impl Inspection {
    /// Visits the entries from a slot on, in slot order, until `visit` returns
    /// [`ControlFlow::Break`] or an error. If there are more than fit in memory, the records are
    /// read again. Entries of later records are not visited.
    ///
    /// # Errors
    /// The error of `visit`, and [`StorageError`] for a record that cannot be read.
    pub fn visit(
        &self,
        from: Slot,
        visit: impl FnMut(Slot, &InspectSummary) -> Result<ControlFlow<()>, StorageError>,
    ) -> Result<(), StorageError> {
        self.windows.visit(from, visit)
    }

    /// Returns all entries, in slot order. Memory is proportional to their number, about 100 bytes
    /// each; [`Inspection::visit`] is bounded.
    ///
    /// # Errors
    /// As [`Inspection::visit`].
    pub fn slots(&self) -> Result<BTreeMap<Slot, InspectSummary>, StorageError> {
        let mut slots = BTreeMap::new();
        self.visit(Slot::ZERO, |slot, summary| {
            slots.insert(slot, *summary);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(slots)
    }

    /// Returns a reader of the values of entries.
    pub fn values(&self) -> ValueReader<'_> {
        ValueReader::new(self.windows.reader())
    }

    /// Visits the ranges of slots above the floor that may be lost, in order. There are none if no
    /// records were quarantined.
    ///
    /// These are the slots without an entry, up to the highest slot that a record shows to be
    /// committed. With `include_uncommitted` they go up to the highest entry. Without it, they
    /// include slots that are only accepted: their commit may be lost.
    ///
    /// # Errors
    /// As [`Inspection::visit`].
    pub fn lost(
        &self,
        include_uncommitted: bool,
        mut visit: impl FnMut(RangeInclusive<Slot>),
    ) -> Result<(), StorageError> {
        if self.quarantined.is_empty() {
            return Ok(());
        }
        let mut next = self.floor.map_or(Slot::ZERO, Slot::next);
        self.visit(Slot::ZERO, |slot, known| {
            if known.committed || include_uncommitted {
                let before = slot.0.checked_sub(1).map(Slot);
                if let Some(before) = before.filter(|before| *before >= next) {
                    visit(next..=before);
                }
                next = slot.next();
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some(last) = self.committed_end.checked_sub(1).map(Slot).filter(|last| *last >= next)
        {
            visit(next..=last);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use esker_disk::sim::SimDisk;

    use super::*;
    use crate::base::slot::SnapshotBounds;
    use crate::record;
    use crate::state::inner::ConsensusLog;

    /// Against a panic on records that no log writes.
    #[test]
    fn a_commit_of_truncated_or_reversed_slots_is_read() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let log = ConsensusLog::builder("/log").disk(Arc::clone(&disk)).open().unwrap();
        log.snapshots()
            .install(SnapshotBounds { floor: Slot(9), frontier: Slot(9) })
            .unwrap()
            .blocking_wait()
            .unwrap();
        let ballot = crate::Ballot { number: 1, node: 1 };
        log.accept(Slot(15), ballot, b"value").unwrap().blocking_wait().unwrap();
        for (first, last) in [(2, 5), (20, 12)] {
            drop(log.inner.append(|out| record::through(out, first, last)).unwrap());
        }
        log.close().unwrap();
        let inspection = inspect_on(disk, "/log").unwrap();
        assert_eq!((inspection.floor, inspection.records.commits), (Some(Slot(9)), 2));
    }

    /// A summary leads to the value of its own slot, and to no other.
    #[test]
    fn the_value_of_another_slot_is_refused() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let log = ConsensusLog::builder("/log").disk(Arc::clone(&disk)).open().unwrap();
        let ballot = crate::Ballot { number: 1, node: 1 };
        log.accept(Slot(1), ballot, b"value").unwrap().blocking_wait().unwrap();
        log.close().unwrap();
        let inspection = inspect_on(disk, "/log").unwrap();
        let summary = inspection.slots().unwrap()[&Slot(1)];
        let mut values = inspection.values();
        assert_eq!(values.get(Slot(1), &summary).unwrap(), b"value");
        let refused = values.get(Slot(2), &summary);
        assert!(matches!(refused, Err(StorageError::CorruptedRecord { .. })), "{refused:?}");
    }

    /// Appends records in an order that no protocol has, and some that contradict others.
    fn random_records(log: &ConsensusLog, ops: &[(u8, u64, u64, u64)]) {
        for &(kind, slot, number, more) in ops {
            let ballot = crate::Ballot { number, node: 1 };
            let value = vec![7; (more % 5) as usize];
            let appended = log.inner.append(|out| match kind {
                0..=3 => record::accept(out, slot, ballot, &value),
                4 => record::commit(out, &[(slot, ballot)]),
                5 => record::commit(out, &[(slot, ballot), (more, ballot), (slot + 1, ballot)]),
                6 => record::through(out, slot, slot + more % 9),
                7 => record::chosen(out, slot, ballot, &value),
                8 => record::cut(out, slot),
                _ => record::state(out, None, slot / 4, slot / 4, b""),
            });
            drop(appended.unwrap());
        }
    }

    proptest::proptest! {
        /// Many small windows have what one window of all slots has.
        #[test]
        fn windows_of_any_size_have_what_one_replay_has(
            ops in proptest::collection::vec((0u8..10, 0u64..40, 0u64..3, 0u64..40), 0..120),
            slots in 1usize..8,
            runs in 2usize..6,
            run_records in 1u64..5,
        ) {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
            let log = ConsensusLog::builder("/log").disk(Arc::clone(&disk)).open().unwrap();
            random_records(&log, &ops);
            log.close().unwrap();
            let within = |limits| {
                let disk = Arc::clone(&disk);
                inspect_within(disk, Path::new("/log"), limits, &mut |_| {}).unwrap()
            };
            let whole = within(ReplayLimits::DEFAULT);
            let parts = within(ReplayLimits { slots, runs, run_records });
            assert_eq!(parts.slots().unwrap(), whole.slots().unwrap());
            assert_eq!(parts.totals, whole.totals);
            assert_eq!(parts.invalid_records, whole.invalid_records);
            assert_eq!((parts.floor, parts.frontier), (whole.floor, whole.frontier));
            for from in [0, 3, 17] {
                let visited = |inspection: &Inspection| {
                    let mut visited = Vec::new();
                    let mut values = inspection.values();
                    let visit = |slot, summary: &InspectSummary| {
                        assert_eq!(values.get(slot, summary)?.len() as u64, summary.len);
                        visited.push((slot, *summary));
                        Ok(ControlFlow::Continue(()))
                    };
                    inspection.visit(Slot(from), visit).unwrap();
                    visited
                };
                assert_eq!(visited(&parts), visited(&whole));
            }
        }
    }
}
