//! Totals over the records of a log.

use std::collections::BTreeMap;

use esker_log::{Seq, SeqRange};

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
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

impl InspectSummary {
    pub(crate) fn new(offset: Seq, ballot: Ballot, value: &[u8], committed: bool) -> Self {
        Self { ballot, committed, offset, len: value.len() as u64 }
    }
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
    /// The rule that it breaks.
    pub what: &'static str,
}

/// The entries of a log, counted; from [`inspect`](crate::inspect()).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SlotTotals {
    /// Committed slots.
    pub committed: u64,
    /// Slots with an entry that is accepted and not committed.
    pub uncommitted: u64,
    /// The lowest committed slot.
    pub lowest: Option<Slot>,
    /// The highest committed slot.
    pub highest: Option<Slot>,
    /// The highest slot with an entry.
    pub last: Option<Slot>,
    /// The bytes of the values.
    pub bytes: u64,
}

impl SlotTotals {
    fn add(&mut self, slot: Slot, summary: &InspectSummary) {
        self.bytes += summary.len;
        self.last = Some(slot);
        if summary.committed {
            self.committed += 1;
            self.lowest.get_or_insert(slot);
            self.highest = Some(slot);
        } else {
            self.uncommitted += 1;
        }
    }
}

/// The most invalid records that are kept.
pub(crate) const INVALID_RECORDS_MAX: usize = 1000;

/// The entries of a window, in slot order.
pub(crate) type Entries = BTreeMap<Slot, InspectSummary>;

/// The totals over all records, which concern no single slot.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) promised: Option<Ballot>,
    pub(crate) app_state: Vec<u8>,
    /// The record as of which `app_state` is known.
    app_state_at: u64,
    /// The first slot above the floor.
    pub(crate) start: u64,
    /// The first slot that is not decided: according to floors and checkpoints, and then to the
    /// entries that were counted.
    pub(crate) next: u64,
    pub(crate) slots: SlotTotals,
    pub(crate) records: RecordCounts,
    pub(crate) invalid_records: Vec<InvalidRecord>,
    pub(crate) quarantined: Vec<SeqRange>,
    /// One past the highest slot that a record shows to be committed, even if its value is lost.
    pub(crate) committed_end: u64,
}

impl Totals {
    fn show_committed(&mut self, slot: u64) {
        self.committed_end = self.committed_end.max(slot.saturating_add(1));
    }

    pub(crate) fn add(&mut self, seq: Seq, record: &Record<'_>) {
        match *record {
            Record::Promise { ballot } => {
                self.promised = self.promised.max(Some(ballot));
                self.records.promises += 1;
            }
            Record::Accept { ballot, .. } => {
                self.promised = self.promised.max(Some(ballot));
                self.records.accepts += 1;
            }
            Record::Commit { slots } => {
                slots.iter().for_each(|(slot, _)| self.show_committed(slot));
                self.records.commits += 1;
            }
            Record::Through { last, .. } => {
                self.show_committed(last);
                self.records.commits += 1;
            }
            Record::Chosen { slot, .. } => {
                self.show_committed(slot);
                self.records.values += 1;
            }
            Record::State { promise, start, next, app_state }
            | Record::Root { root: Root { promise, start, next, .. }, app_state, .. } => {
                self.promised = self.promised.max(promise);
                let at = record.app_state_at(seq.0);
                if at >= self.app_state_at {
                    (self.app_state, self.app_state_at) = (app_state.to_vec(), at);
                }
                self.start = self.start.max(start);
                self.next = self.next.max(next);
                self.committed_end = self.committed_end.max(next);
                if let Record::Root { root, .. } = record
                    && root.lowest <= root.highest
                {
                    self.show_committed(root.highest);
                }
                match record {
                    Record::State { .. } => self.records.truncations += 1,
                    _ => self.records.checkpoints += 1,
                }
            }
            Record::Cut { .. } => self.records.truncations += 1,
            Record::Page { .. } => self.records.checkpoints += 1,
        }
    }

    /// Counts the entries of the next window.
    pub(crate) fn count(&mut self, entries: &Entries) {
        for (slot, summary) in entries {
            self.slots.add(*slot, summary);
            if slot.0 == self.next && summary.committed {
                self.next = self.next.saturating_add(1);
            }
        }
    }

    pub(crate) fn report_invalid(&mut self, record: InvalidRecord) {
        if self.invalid_records.len() < INVALID_RECORDS_MAX {
            self.invalid_records.push(record);
        }
    }
}
