//! What is durably committed: the frontier, the range, and which values stay in memory.
//!
//! A commit is told here with its marker, and counts once the marker is durable. Whoever asks, or
//! commits, lets those count that have become so: there is no thread for it.

use std::collections::VecDeque;

use crossbeam_epoch::Guard;

use crate::index::Found;
use crate::log::{ConsensusLog, Inner};
use crate::page::{State, number_of};

/// Committed slots, gaps between them or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedRange {
    /// The lowest.
    pub lowest: u64,
    /// The highest.
    pub highest: u64,
    /// How many there are.
    pub count: u64,
}

/// A value in memory: its slot, its marker, what it counts.
type Cached = (u64, u64, u64);

/// Commits that are pending before a commit looks which of them count.
const MANY: usize = 64;

/// A raise of the floor: its record, the first slot kept and the first slot not decided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raise {
    pub(crate) record: u64,
    pub(crate) start: u64,
    pub(crate) next: u64,
}

#[derive(Debug)]
pub(crate) struct Settled {
    /// Marker, slot and size of commits that are not durable yet, by marker.
    pending: VecDeque<(u64, u64, u64)>,
    /// Raises of the floor that are not durable yet, in the order of their records.
    raises: VecDeque<Raise>,
    /// The first slot that was not truncated, durably.
    kept: u64,
    /// The first slot that is not known to be decided.
    next: u64,
    range: Option<CommittedRange>,
    /// Committed values in memory, the oldest first.
    cache: VecDeque<Cached>,
    cached: u64,
    /// The page that the frontier stands at could not be read.
    stuck: bool,
}

impl Settled {
    pub(crate) fn new(next: u64) -> Self {
        let (pending, raises, cache) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let (kept, range) = (next, None);
        Self { pending, raises, kept, next, range, cache, cached: 0, stuck: false }
    }

    /// A marker was appended; how many are pending now.
    pub(crate) fn committed(&mut self, marker: u64, slot: u64, bytes: u64) -> usize {
        // Nearly in order: threads that commit different slots may come here the other way round.
        let mut at = self.pending.len();
        while at > 0 && self.pending[at - 1].0 > marker {
            at -= 1;
        }
        if at == self.pending.len() {
            self.pending.push_back((marker, slot, bytes));
        } else {
            self.pending.insert(at, (marker, slot, bytes));
        }
        self.pending.len()
    }

    /// As recovery found it.
    pub(crate) fn recovered(&mut self, kept: u64, next: u64, range: Option<CommittedRange>) {
        self.kept = kept;
        self.next = next;
        self.range = range;
    }

    /// The first slot that was not truncated, durably.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// The first slot that is not decided, as those who decide see it: with raises that are not durable
    /// yet, whose records come before theirs.
    pub(crate) fn decided(&self) -> u64 {
        self.raises.back().map_or(self.next, |raise| self.next.max(raise.next))
    }

    /// The record of a raise was appended.
    pub(crate) fn raise(&mut self, raise: Raise) {
        self.raises.push_back(raise);
    }

    /// Lets those raises count that are durable; whether there was one.
    fn raised(&mut self, durable: u64) -> bool {
        let mut any = false;
        while let Some(raise) = self.raises.front().copied().filter(|raise| raise.record <= durable)
        {
            self.raises.pop_front();
            self.kept = self.kept.max(raise.start);
            self.next = self.next.max(raise.next);
            any = true;
        }
        any
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn next_and_highest(&self) -> (u64, Option<u64>) {
        let pending = self.pending.iter().map(|(_, slot, _)| *slot);
        (self.decided(), pending.chain(self.range.map(|range| range.highest)).max())
    }

    pub(crate) fn range(&self) -> Option<CommittedRange> {
        self.range
    }

    /// With those that are not durable yet.
    pub(crate) fn range_with_pending(&self) -> Option<CommittedRange> {
        let pending = self.pending.iter().map(|(_, slot, _)| *slot);
        pending.fold(self.range, |range, slot| Some(with(range, slot)))
    }

    pub(crate) fn count(&mut self, slot: u64) {
        self.range = Some(with(self.range, slot));
    }

    /// Slots below `start` are gone, so many of them committed.
    pub(crate) fn forget_below(&mut self, start: u64, gone: u64, lowest: Option<u64>) {
        // Those that are not durable yet are in no count.
        let before = self.pending.len();
        self.pending.retain(|(_, slot, _)| *slot >= start);
        let gone = gone.saturating_sub((before - self.pending.len()) as u64);
        self.range = match (self.range, lowest) {
            (Some(range), Some(lowest)) if range.count > gone => {
                Some(CommittedRange { lowest, count: range.count - gone, ..range })
            }
            _ => None,
        };
    }

    pub(crate) fn cached(&self) -> u64 {
        self.cached
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// A value of a committed slot came into memory.
    pub(crate) fn cache(&mut self, slot: u64, seq: u64, bytes: u64) {
        self.cache.push_back((slot, seq, bytes));
        self.cached += bytes;
    }
}

fn with(range: Option<CommittedRange>, slot: u64) -> CommittedRange {
    match range {
        None => CommittedRange { lowest: slot, highest: slot, count: 1 },
        Some(range) => CommittedRange {
            lowest: range.lowest.min(slot),
            highest: range.highest.max(slot),
            count: range.count + 1,
        },
    }
}

impl ConsensusLog {
    /// The lowest and highest committed slot and how many there are; `None` when there is none.
    /// Costs the same however many there are.
    pub fn committed_range(&self) -> Option<CommittedRange> {
        self.inner.settle(&crossbeam_epoch::pin());
        self.inner.settled.lock().range
    }

    /// The frontier: this slot and every one below it is durably committed, or was truncated. `None`
    /// when the first slot is not.
    pub fn frontier(&self) -> Option<u64> {
        self.inner.frontier()
    }

    /// Slots up to this one were truncated, durably. `None` when none was.
    pub fn floor(&self) -> Option<u64> {
        self.inner.settle(&crossbeam_epoch::pin());
        self.inner.settled.lock().kept().checked_sub(1)
    }
}

impl Inner {
    pub(crate) fn frontier(&self) -> Option<u64> {
        self.settle(&crossbeam_epoch::pin());
        self.settled.lock().next.checked_sub(1)
    }

    /// The same, when there are many, or somebody watches: so that what is pending stays bounded.
    pub(crate) fn settle_if_many(&self, pending: usize, guard: &Guard) {
        let watched = !self.options.sync_on_commit && self.waiting.is_watched();
        if watched || pending >= MANY {
            self.settle(guard);
        }
    }

    /// Lets those commits count whose markers are durable, and those raises of the floor.
    pub(crate) fn settle(&self, guard: &Guard) {
        let visible = self.visible();
        let durable = self.log.durable().0;
        let mut settled = self.settled.lock();
        let before = settled.next;
        if settled.raised(durable) {
            self.advance(&mut settled, visible, guard);
        }
        while let Some((marker, slot, bytes)) = settled.pending.front().copied() {
            if marker > visible {
                break;
            }
            settled.pending.pop_front();
            settled.count(slot);
            settled.cache(slot, marker, bytes);
            if slot == settled.next {
                self.advance(&mut settled, visible, guard);
            }
        }
        if settled.stuck {
            self.advance(&mut settled, visible, guard);
        }
        self.evict(&mut settled, guard);
        let moved = settled.next != before;
        drop(settled);
        if moved {
            self.waiting.wake();
        }
    }

    /// Moves the frontier over all slots that are committed without a gap.
    pub(crate) fn advance(&self, settled: &mut Settled, visible: u64, guard: &Guard) {
        settled.stuck = false;
        loop {
            // A page that only the log has is read; if that fails, whoever comes next tries again.
            let page = match self.page(number_of(settled.next), guard) {
                Ok(Some(page)) => page,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "the frontier stands still");
                    settled.stuck = true;
                    return;
                }
            };
            for (slot, place) in page.from(settled.next) {
                let counts = place.word().state() == State::Committed
                    && place.held().load(guard).is_none_or(|held| held.marker() <= visible);
                if !counts {
                    return;
                }
                settled.next = slot + 1;
            }
        }
    }

    /// Takes the oldest committed values out of memory while there are too many. What is not durable
    /// stays: it could not be read back.
    fn evict(&self, settled: &mut Settled, guard: &Guard) {
        if settled.cached <= self.options.cache_size {
            return;
        }
        let durable = self.log.durable().0;
        while settled.cached > self.options.cache_size {
            let Some((slot, seq, bytes)) = settled.cache.front().copied() else { return };
            if seq > durable {
                return;
            }
            settled.cache.pop_front();
            settled.cached -= bytes;
            if let Found::Page(page) = self.index.find(number_of(slot), guard) {
                let place = page.slot(slot);
                if place.word().state() == State::Committed {
                    place.put(None, bytes, guard);
                }
            }
        }
    }
}
