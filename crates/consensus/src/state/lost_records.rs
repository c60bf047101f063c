//! The records that a repaired log lost, and the slots that may have been in them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use esker_log::Seq;
use parking_lot::Mutex;

/// The lost records of a repaired log. An ordinary log has none.
#[derive(Debug, Default)]
pub(crate) struct LostRecords {
    /// From the first lost record to the last. No record outside this range is missing.
    range: Mutex<Option<(Seq, Seq)>>,
    /// One past the highest slot that a record showed to be committed when the log was opened.
    committed_end: AtomicU64,
    /// One past the highest slot that was accepted when the log was opened.
    accepted_end: AtomicU64,
}

impl LostRecords {
    /// From the first lost record to the last; `None` if none is lost.
    pub(crate) fn range(&self) -> Option<(Seq, Seq)> {
        *self.range.lock()
    }

    /// Adds a quarantined range, which follows those that were added before.
    pub(crate) fn add(&self, from: Seq, to: Seq) {
        let mut range = self.range.lock();
        debug_assert!(from <= to, "a quarantined range ends before it starts");
        debug_assert!(range.is_none_or(|(_, last)| last <= to), "ranges are not in order");
        let first = range.map_or(from, |(first, _)| first);
        *range = Some((first, to));
    }

    /// Adds the records up to `last`, of which no range is known, if there is no other range.
    pub(crate) fn add_beginning(&self, last: Seq) {
        self.range.lock().get_or_insert((Seq::ZERO, last));
    }

    /// Whether no lost record can have replaced the accept in record `seq`.
    pub(crate) fn is_current(&self, seq: u64) -> bool {
        self.range().is_none_or(|(_, last)| seq > last.0)
    }

    pub(crate) fn set_ends(&self, committed_end: u64, accepted_end: u64) {
        self.committed_end.store(committed_end, Relaxed);
        self.accepted_end.store(accepted_end, Relaxed);
    }

    /// One past the highest slot that may be lost or has an entry; `None` if no record is lost.
    pub(crate) fn slot_end(&self, include_uncommitted: bool) -> Option<u64> {
        self.range().map(|_| {
            let committed = self.committed_end.load(Relaxed);
            let accepted = if include_uncommitted { self.accepted_end.load(Relaxed) } else { 0 };
            committed.max(accepted)
        })
    }
}
