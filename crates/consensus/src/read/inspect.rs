//! Inspecting a consensus log without its lock, and without changing it.
//!
//! Inspection reads every record from the oldest on and uses no checkpoint. So it verifies
//! independently what opening a log recovers. It skips the ranges that `repair` quarantined.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use esker_disk::{Disk, StdDisk};
use esker_log::{ReadOnlyLog, ReadOptions, Seq, SeqRange, Start, View};

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::component;
use crate::outcome::{Error, Result};
use crate::record::{Record, Root};

/// The state of a slot, according to the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InspectSummary {
    /// The ballot of its value.
    pub ballot: Ballot,
    /// Whether it is committed.
    pub committed: bool,
    /// The record that holds its value.
    pub offset: Seq,
    /// The value's length in bytes.
    pub len: u64,
}

/// Records read, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RecordCounts {
    /// Promises.
    pub promises: u64,
    /// Accepted values.
    pub accepts: u64,
    /// Commit markers, of one or more slots.
    pub commits: u64,
    /// Values that were stored as committed.
    pub values: u64,
    /// Raises of the floor and cuts of the suffix.
    pub truncations: u64,
    /// Pages and roots of checkpoints.
    pub checkpoints: u64,
}

/// A record that is invalid, or that contradicts an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidRecord {
    /// The record.
    pub seq: Seq,
    /// What is wrong with it.
    pub what: &'static str,
}

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
    /// The slots, in order. Memory use is proportional to their number.
    pub slots: BTreeMap<Slot, InspectSummary>,
    /// Records read, by kind.
    pub records: RecordCounts,
    /// Records that are invalid or contradict earlier ones: the first 1000 of them.
    pub invalid_records: Vec<InvalidRecord>,
    /// Ranges of records that `repair` quarantined: the last record before the range, and the last
    /// one in it. A slot that is missing after such a range may have been in it.
    pub quarantined: Vec<SeqRange>,
    /// One past the highest slot that a record shows to be committed, even if its value is lost.
    committed_end: u64,
    /// The record as of which `app_state` is known.
    app_state_at: u64,
    reader: ReadOnlyLog,
}

/// The most invalid records that are kept.
const INVALID_RECORDS: usize = 1000;

/// Reads the durable records of the consensus log in `dir`, with or without a live writer. Blocks
/// until all are read.
///
/// # Errors
/// [`Error::Log`] if there is no log, if it is corrupt, or if it is a plain log or one of another
/// component.
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
/// assert!(inspection.slots[&Slot(0)].committed && inspection.invalid_records.is_empty());
/// # log.close()
/// # }
/// ```
pub fn inspect(dir: impl AsRef<Path>) -> Result<Inspection> {
    inspect_on(Arc::new(StdDisk::new()), dir)
}

/// As [`inspect`], for a log on `disk`.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_on(disk: Arc<dyn Disk>, dir: impl AsRef<Path>) -> Result<Inspection> {
    let dir = dir.as_ref();
    let (reader, is_known) = component::open_read_only(dir, ReadOptions::on(disk))?;
    let mut inspection = Inspection {
        promised: None,
        app_state: Vec::new(),
        app_state_at: 0,
        floor: None,
        frontier: None,
        slots: BTreeMap::new(),
        records: RecordCounts::default(),
        invalid_records: Vec::new(),
        quarantined: Vec::new(),
        committed_end: 0,
        reader,
    };
    match inspection.read(is_known) {
        // Neither app metadata nor records identify a consensus log: it is a plain log, maybe
        // empty.
        Err(Error::CorruptedRecord { .. }) => Err(component::plain(dir)),
        Ok(()) if !is_known && inspection.records == RecordCounts::default() => {
            Err(component::plain(dir))
        }
        outcome => outcome.map(|()| inspection),
    }
}

impl Inspection {
    /// The value of a slot; `None` for a slot without one.
    ///
    /// # Errors
    /// [`Error::CorruptedEntry`].
    pub fn value(&self, slot: Slot) -> Result<Option<Value>> {
        let Some(summary) = self.slots.get(&slot) else { return Ok(None) };
        match self.reader.read(summary.offset) {
            Ok(view) => Ok(Some(Value(view))),
            Err(cause) => Err(Error::CorruptedEntry { slot, cause }),
        }
    }

    /// The ranges of slots above the floor that may be lost, in order. Empty if no records were
    /// quarantined.
    ///
    /// These are the slots without an entry, up to the highest slot that a record shows to be
    /// committed. With `include_uncommitted` they go up to the highest entry. Without it, they
    /// include slots that are only accepted: their commit may be lost.
    pub fn lost(&self, include_uncommitted: bool) -> Vec<RangeInclusive<Slot>> {
        let mut lost = Vec::new();
        if self.quarantined.is_empty() {
            return lost;
        }
        let mut next = self.floor.map_or(Slot::ZERO, Slot::next);
        let slots = self.slots.iter().filter(|(_, known)| known.committed || include_uncommitted);
        for (slot, _) in slots {
            if let Some(before) = slot.0.checked_sub(1).map(Slot).filter(|before| *before >= next) {
                lost.push(next..=before);
            }
            next = slot.next();
        }
        if let Some(last) = self.committed_end.checked_sub(1).map(Slot).filter(|last| *last >= next)
        {
            lost.push(next..=last);
        }
        lost
    }

    fn show_committed(&mut self, slot: u64) {
        self.committed_end = self.committed_end.max(slot.saturating_add(1));
    }

    fn read(&mut self, ours: bool) -> Result<()> {
        let mut stream = self.reader.stream(Start::Oldest).map_err(Error::Log)?;
        let (mut start, mut next) = (0, 0);
        loop {
            let batch = match stream.try_next() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(esker_log::Error::Quarantined { from, to }) => {
                    self.quarantined.push(SeqRange { from, to });
                    continue;
                }
                Err(error) => return Err(Error::Log(error)),
            };
            for record in &batch {
                match Record::decode(record.payload) {
                    Ok(decoded) => self.take(record.seq, &decoded, &mut start, &mut next),
                    Err(what) if !ours && self.records == RecordCounts::default() => {
                        return Err(Error::CorruptedRecord { seq: record.seq, what });
                    }
                    Err(what) => self.report_invalid(record.seq, what),
                }
            }
        }
        while self.slots.get(&Slot(next)).is_some_and(|summary| summary.committed) {
            next += 1;
        }
        self.floor = u64::checked_sub(start, 1).map(Slot);
        self.frontier = u64::checked_sub(next, 1).map(Slot);
        Ok(())
    }

    fn take(&mut self, seq: Seq, record: &Record<'_>, start: &mut u64, next: &mut u64) {
        match *record {
            Record::Promise { ballot } => {
                self.promised = self.promised.max(Some(ballot));
                self.records.promises += 1;
            }
            Record::Accept { slot, ballot, value } => {
                self.promised = self.promised.max(Some(ballot));
                let summary = InspectSummary {
                    ballot,
                    committed: false,
                    offset: seq,
                    len: value.len() as u64,
                };
                let known = self.slots.get(&Slot(slot));
                if slot >= *start && known.is_none_or(|known| !known.committed) {
                    self.slots.insert(Slot(slot), summary);
                }
                self.records.accepts += 1;
            }
            Record::Commit { slots } => {
                for (slot, ballot) in slots.iter().filter(|(slot, _)| *slot >= *start) {
                    self.show_committed(slot);
                    let certain = self.certain();
                    match self.slots.get_mut(&Slot(slot)) {
                        Some(known) if known.committed => {}
                        Some(known) if known.offset <= certain => {
                            self.slots.remove(&Slot(slot));
                        }
                        Some(known) if known.ballot == ballot => known.committed = true,
                        Some(_) => {
                            self.report_invalid(seq, "it commits another ballot than was accepted");
                        }
                        // The accept was in a dropped prefix; its copy follows.
                        None => {}
                    }
                }
                self.records.commits += 1;
            }
            Record::Through { first, last } => {
                self.show_committed(last);
                let certain = self.certain();
                let first = first.max(*start);
                let mut replaced = Vec::new();
                // The map panics for a range that ends before it starts.
                let covered = (first <= last).then_some(Slot(first)..=Slot(last));
                let covered = covered.map(|covered| self.slots.range_mut(covered));
                for (slot, known) in covered.into_iter().flatten() {
                    if known.committed || known.offset > certain {
                        known.committed = true;
                    } else {
                        replaced.push(*slot);
                    }
                }
                for slot in replaced {
                    self.slots.remove(&slot);
                }
                self.records.commits += 1;
            }
            Record::Chosen { slot, ballot, value } => {
                self.show_committed(slot);
                let summary = InspectSummary {
                    ballot,
                    committed: true,
                    offset: seq,
                    len: value.len() as u64,
                };
                let other = self.slots.get(&Slot(slot)).is_some_and(|known| {
                    known.committed && known.ballot == ballot && known.len != summary.len
                });
                if other {
                    self.report_invalid(seq, "the slot was committed with another value");
                }
                if slot >= *start {
                    self.slots.insert(Slot(slot), summary);
                }
                self.records.values += 1;
            }
            Record::State { promise, start: to, next: decided, app_state }
            | Record::Root {
                root: Root { promise, start: to, next: decided, .. },
                app_state,
                ..
            } => {
                self.promised = self.promised.max(promise);
                let at = record.app_state_at(seq.0);
                if at >= self.app_state_at {
                    (self.app_state, self.app_state_at) = (app_state.to_vec(), at);
                }
                *next = decided.max(*next);
                self.committed_end = self.committed_end.max(decided);
                if let Record::Root { root, .. } = record
                    && root.lowest <= root.highest
                {
                    self.show_committed(root.highest);
                }
                if to > *start {
                    *start = to;
                    self.slots = self.slots.split_off(&Slot(to));
                }
                match record {
                    Record::State { .. } => self.records.truncations += 1,
                    _ => self.records.checkpoints += 1,
                }
            }
            Record::Cut { from } => {
                self.slots.retain(|slot, known| known.committed || slot.0 < from);
                self.records.truncations += 1;
            }
            Record::Page { .. } => self.records.checkpoints += 1,
        }
    }

    /// The end of the last quarantined range. A quarantined record may have replaced a value up to
    /// here, so a marker after it may commit another value.
    fn certain(&self) -> Seq {
        self.quarantined.last().map_or(Seq(0), |range| range.to)
    }

    fn report_invalid(&mut self, seq: Seq, what: &'static str) {
        if self.invalid_records.len() < INVALID_RECORDS {
            self.invalid_records.push(InvalidRecord { seq, what });
        }
    }
}

/// A value, as a view of the bytes that were read.
#[derive(Debug, Clone)]
pub struct Value(View);

impl std::ops::Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.payload().get(crate::record::VALUE_AT..).unwrap_or_default()
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
        log.install(SnapshotBounds { floor: Slot(9), frontier: Slot(9) }).unwrap();
        let ballot = crate::Ballot { number: 1, node: 1 };
        log.accept(Slot(15), ballot, b"value").unwrap().blocking_wait().unwrap();
        for (first, last) in [(2, 5), (20, 12)] {
            drop(log.inner.append(|out| record::through(out, first, last)).unwrap());
        }
        log.inner.log.barrier().unwrap().blocking_wait().unwrap();
        let inspection = inspect_on(disk, "/log").unwrap();
        assert_eq!((inspection.floor, inspection.records.commits), (Some(Slot(9)), 2));
        log.close().unwrap();
    }
}
