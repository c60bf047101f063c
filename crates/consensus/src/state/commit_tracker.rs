//! Tracks what is durably committed: the frontier, the range, and which values stay in memory.
//!
//! An operation registers each commit with its marker, and the commit counts once the marker is
//! durable. There is no thread for this: queries and commits count those that have become durable.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::base::slot::Slot;

/// The committed slots, with or without gaps between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedRange {
    /// The lowest committed slot.
    pub lowest: Slot,
    /// The highest committed slot.
    pub highest: Slot,
    /// The number of committed slots.
    pub count: u64,
}

/// A committed value in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct CachedValue {
    pub(super) slot: u64,
    /// The record that commits it, or that it was read back from. It is evicted only when this
    /// record is durable.
    pub(super) marker: u64,
    /// The bytes that it is charged.
    pub(super) bytes: u64,
}

/// A commit whose marker is not durable yet, and its value.
pub(super) type PendingCommit = CachedValue;

/// The bytes that the application stores with the floor.
pub(crate) type AppStateBytes = Arc<[u8]>;

/// A raise of the floor: its record, the first kept slot, the first undecided slot, and what the
/// application stores with them.
#[derive(Debug, Clone)]
pub(crate) struct FloorRaise {
    pub(crate) record: u64,
    pub(crate) start: u64,
    pub(crate) next: u64,
    pub(crate) app_state: AppStateBytes,
}

#[derive(Debug)]
pub(crate) struct CommitTracker {
    /// Commits whose markers are not durable yet, by marker.
    pub(super) pending: VecDeque<PendingCommit>,
    /// Raises of the floor that are not durable yet, in the order of their records.
    pub(super) raises: VecDeque<FloorRaise>,
    /// The durable state of the application.
    pub(super) app_state: AppStateBytes,
    /// The first slot that is not durably truncated.
    pub(super) kept: u64,
    /// The first slot that is not known to be decided.
    pub(super) next: u64,
    pub(super) range: Option<CommittedRange>,
    /// Committed values in memory, the oldest first.
    pub(super) cache: VecDeque<CachedValue>,
    pub(super) cached: u64,
    /// Whether the page at the frontier is not in memory.
    pub(super) lacks_page: bool,
}

impl CommitTracker {
    pub(crate) fn new(next: u64) -> Self {
        let (pending, raises, cache) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let (kept, range) = (next, None);
        let app_state = AppStateBytes::default();
        Self { pending, raises, app_state, kept, next, range, cache, cached: 0, lacks_page: false }
    }

    /// Registers a commit whose marker was appended. Returns how many commits are pending.
    pub(crate) fn committed(&mut self, marker: u64, slot: u64, bytes: u64) -> usize {
        debug_assert!(marker > 0, "a commit has no record");
        // Nearly in order: threads that commit different slots may arrive out of order.
        let mut at = self.pending.len();
        while at > 0 && self.pending[at - 1].marker > marker {
            at -= 1;
        }
        let commit = PendingCommit { slot, marker, bytes };
        if at == self.pending.len() {
            self.pending.push_back(commit);
        } else {
            self.pending.insert(at, commit);
        }
        self.pending.len()
    }

    /// Panics where an invariant is broken. Does nothing in release builds.
    #[inline]
    pub(super) fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        assert!(self.kept <= self.next, "slots are truncated that are not decided");
        let ends = (self.pending.front(), self.pending.back());
        if let (Some(first), Some(last)) = ends {
            assert!(
                first.marker <= last.marker,
                "pending commits are not in the order of their markers"
            );
        }
        if let (Some(first), Some(last)) = (self.raises.front(), self.raises.back()) {
            assert!(first.record <= last.record, "raises are not in the order of their records");
            assert!(first.start <= last.start, "the floor moves back");
        }
        if let Some(range) = self.range {
            assert!(range.lowest <= range.highest && range.count > 0, "an empty committed range");
        }
        assert!(self.cached == 0 || !self.cache.is_empty(), "bytes are cached without a value");
    }

    /// Sets the slots that recovery found to be kept and decided.
    pub(crate) fn set_recovered(&mut self, kept: u64, next: u64, range: Option<CommittedRange>) {
        debug_assert!(kept <= next, "slots below the floor are not decided");
        self.kept = kept;
        self.next = next;
        self.range = range;
    }

    pub(crate) fn set_recovered_app_state(&mut self, app_state: AppStateBytes) {
        self.app_state = app_state;
    }

    /// The durable state of the application.
    pub(crate) fn app_state(&self) -> AppStateBytes {
        Arc::clone(&self.app_state)
    }

    /// The newest state of the application, durable or not.
    pub(crate) fn newest_app_state(&self) -> AppStateBytes {
        Arc::clone(self.raises.back().map_or(&self.app_state, |raise| &raise.app_state))
    }

    /// The first slot that is not durably truncated.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// The first undecided slot, as decisions see it: with raises that are not durable yet, whose
    /// records precede those of the decisions.
    pub(crate) fn decided(&self) -> u64 {
        self.raises.back().map_or(self.next, |raise| self.next.max(raise.next))
    }

    /// Registers a raise whose record was appended.
    pub(crate) fn raise(&mut self, raise: FloorRaise) {
        debug_assert!(raise.start <= raise.next, "slots below the floor are not decided");
        let last = self.raises.back().map_or(0, |last| last.next);
        debug_assert!(raise.next >= last, "a raise takes a decision back");
        self.raises.push_back(raise);
        self.check_invariants();
    }

    /// Applies the raises that are durable. Returns whether there was one.
    pub(super) fn apply_raises(&mut self, durable: u64) -> bool {
        let mut any = false;
        while self.raises.front().is_some_and(|raise| raise.record <= durable)
            && let Some(raise) = self.raises.pop_front()
        {
            self.kept = self.kept.max(raise.start);
            self.next = self.next.max(raise.next);
            self.app_state = raise.app_state;
            any = true;
        }
        any
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn next_and_highest(&self) -> (u64, Option<u64>) {
        let pending = self.pending.iter().map(|commit| commit.slot);
        (self.decided(), pending.chain(self.range.map(|range| range.highest.0)).max())
    }

    pub(crate) fn range(&self) -> Option<CommittedRange> {
        self.range
    }

    /// The range, including commits that are not durable yet.
    pub(crate) fn range_with_pending(&self) -> Option<CommittedRange> {
        let pending = self.pending.iter().map(|commit| commit.slot);
        pending.fold(self.range, |range, slot| Some(with(range, slot)))
    }

    pub(crate) fn count(&mut self, slot: u64) {
        self.range = Some(with(self.range, slot));
    }

    /// Removes the slots below `start`, of which `gone` were committed.
    pub(crate) fn forget_below(&mut self, start: u64, gone: u64, lowest: Option<u64>) {
        // Commits that are not durable yet are in no count.
        let before = self.pending.len();
        self.pending.retain(|commit| commit.slot >= start);
        let gone = gone.saturating_sub((before - self.pending.len()) as u64);
        self.range = match (self.range, lowest) {
            (Some(range), Some(lowest)) if range.count > gone => {
                Some(CommittedRange { lowest: Slot(lowest), count: range.count - gone, ..range })
            }
            _ => None,
        };
    }

    pub(crate) fn cached(&self) -> u64 {
        self.cached
    }

    /// The slots whose commits are not durable yet.
    pub(crate) fn pending_slots(&self) -> BTreeSet<u64> {
        self.pending.iter().map(|commit| commit.slot).collect()
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Registers a value of a committed slot that is now in memory.
    pub(crate) fn cache(&mut self, slot: u64, marker: u64, bytes: u64) {
        self.cache.push_back(CachedValue { slot, marker, bytes });
        self.cached += bytes;
    }
}

fn with(range: Option<CommittedRange>, slot: u64) -> CommittedRange {
    let slot = Slot(slot);
    match range {
        None => CommittedRange { lowest: slot, highest: slot, count: 1 },
        Some(range) => CommittedRange {
            lowest: range.lowest.min(slot),
            highest: range.highest.max(slot),
            count: range.count + 1,
        },
    }
}
