//! Going through slots in order, whatever the order of accepts and commits was.

use std::ops::{Bound, ControlFlow, RangeBounds, RangeInclusive};

use crossbeam_epoch::Guard;
use esker_log::{Seq, Start};

use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::held::hold;
use crate::log::{ConsensusLog, Inner};
use crate::page::{SLOTS, State, number_of};
use crate::record::Record;
use crate::region::charge;

/// Slots visited under one guard.
const UNDER_ONE_GUARD: u64 = 1024;

/// What an iteration visits.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct IterateOptions {
    /// Visit what is accepted and not committed, too.
    pub include_uncommitted: bool,
    /// Pass over entries that cannot be read, and count and tell them, instead of ending there.
    pub skip_errors: bool,
}

/// What an iteration came to.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Iterated {
    /// Entries visited.
    pub visited: u64,
    /// Entries passed over because they could not be read. A page of the index that cannot be read
    /// counts as one, under its first slot: nobody knows what is in its 4096 slots.
    pub unreadable: u64,
    /// The first 1024 of them, with the reason.
    pub skipped: Vec<(u64, Error)>,
    /// The callback ended it.
    pub stopped: bool,
}

/// Reasons kept for entries that were passed over; more are counted alone.
const REASONS: usize = 1024;

impl ConsensusLog {
    /// Visits the entries of a range of slots in ascending order. Gaps are passed over, slots that
    /// were truncated among them. What is committed after the call is not visited: nothing above the
    /// highest slot that was committed at the call, and what fills a gap only if its value left the
    /// cache again before the iteration came to it.
    ///
    /// Entries are lent: they do not outlive their visit; see [`Entry::into_owned`].
    ///
    /// # Errors
    /// The first entry that cannot be read, unless `skip_errors` is set.
    pub fn iterate(
        &self,
        range: impl RangeBounds<u64>,
        options: IterateOptions,
        mut visit: impl FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<Iterated> {
        let mut done = Iterated::default();
        let Some((first, last)) = self.bounds(&range, options.include_uncommitted) else {
            self.inner.refuse_if_closed()?;
            return Ok(done);
        };
        let mut each = |found: Result<&Entry<'_>>| match found {
            Ok(entry) => {
                done.visited += 1;
                Ok(visit(entry))
            }
            Err(Error::CorruptedEntry { slot, cause }) if options.skip_errors => {
                done.unreadable += 1;
                if done.skipped.len() < REASONS {
                    done.skipped.push((slot, Error::CorruptedEntry { slot, cause }));
                }
                Ok(ControlFlow::Continue(()))
            }
            Err(error) => Err(error),
        };
        let flow = self.go_through(first, last, options.include_uncommitted, &mut each)?;
        done.stopped = flow.is_break();
        Ok(done)
    }

    /// Visits what is committed from a slot on, up to the highest slot that is committed now: a commit
    /// that comes after the call is never delivered behind it.
    ///
    /// # Errors
    /// The first entry that cannot be read.
    pub fn replay_from(
        &self,
        slot: u64,
        visit: impl FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<Iterated> {
        self.iterate(slot.., IterateOptions::default(), visit)
    }

    /// Visits what is committed in a range of slots, both ends included.
    ///
    /// # Errors
    /// The first entry that cannot be read.
    pub fn replay_range(
        &self,
        range: RangeInclusive<u64>,
        visit: impl FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<Iterated> {
        self.iterate(range, IterateOptions::default(), visit)
    }

    /// As the two above, without counting.
    pub(crate) fn iterate_raw(
        &self,
        first: u64,
        last: u64,
        include_uncommitted: bool,
        visit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.go_through(first, last, include_uncommitted, &mut |found| found.map(&mut *visit))
    }

    /// The slots that there may be something in; `None` when there are none.
    fn bounds(&self, range: &impl RangeBounds<u64>, uncommitted: bool) -> Option<(u64, u64)> {
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let last = match range.end_bound() {
            Bound::Included(last) => *last,
            Bound::Excluded(behind) => behind.checked_sub(1)?,
            Bound::Unbounded => u64::MAX,
        };
        let end = if uncommitted {
            u64::MAX
        } else {
            // Fixed here, whatever is committed later.
            self.committed_range()?.highest
        };
        let (first, last) = (first.max(self.inner.start()), last.min(end));
        (first <= last).then_some((first, last))
    }

    fn go_through(
        &self,
        first: u64,
        last: u64,
        uncommitted: bool,
        each: &mut dyn FnMut(Result<&Entry<'_>>) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        let inner = &*self.inner;
        // What is committed from here on is not told of.
        let known = if inner.options.sync_on_commit {
            inner.log.durable().0
        } else {
            inner.log.accepted().0
        };
        // What is missing between committed slots may have been committed, where something was put aside.
        let lost = !uncommitted && inner.lost.lock().is_some();
        let mut slot = first;
        while slot <= last {
            inner.refuse_if_closed()?;
            // A guard that is held for long keeps memory from being used again.
            let guard = crossbeam_epoch::pin();
            let Some(number) = inner.index.next_page(number_of(slot), &guard) else { break };
            if lost && number > number_of(slot) && each(Err(inner.missing(slot)))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            slot = slot.max(number * SLOTS as u64);
            let page = match inner.page(number, &guard) {
                Ok(Some(page)) => page,
                Ok(None) => continue,
                Err(error) => {
                    if each(Err(error))?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    let Some(next) = (number + 1).checked_mul(SLOTS as u64) else { break };
                    slot = next;
                    continue;
                }
            };
            let end = last.min(slot.saturating_add(UNDER_ONE_GUARD - 1));
            let mut ahead = ReadAhead::default();
            for (n, place) in page.from(slot).take_while(|(n, _)| *n <= end) {
                let word = place.word();
                slot = n;
                if word.state() == State::Empty || (word.state() == State::Accepted && !uncommitted)
                {
                    if lost && each(Err(inner.missing(n)))?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    continue;
                }
                match place.held().load(&guard) {
                    Some(held) if held.marker() > known && !uncommitted => continue,
                    None if word.seq() > 0 => inner.read_ahead(word.seq(), &mut ahead, &guard),
                    _ => {}
                }
                let flow = match inner.entry_at(n, place, &guard) {
                    Ok(entry) if !entry.is_committed() && !uncommitted => continue,
                    Ok(entry) => each(Ok(&entry))?,
                    Err(Error::SlotNotFound { .. } | Error::Truncated { .. }) => continue,
                    Err(error) => each(Err(error))?,
                };
                if flow.is_break() {
                    return Ok(flow);
                }
            }
            let Some(next) = slot.checked_add(1) else { break };
            slot = next;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The records that were read ahead last.
#[derive(Debug, Default)]
struct ReadAhead {
    through: u64,
}

impl Inner {
    /// Brings the values that stand from this record on into memory, as many as one read gives.
    /// Failing does no harm: the single read that follows says what is wrong.
    fn read_ahead(&self, seq: u64, ahead: &mut ReadAhead, guard: &Guard) {
        if seq <= ahead.through {
            return;
        }
        let Ok(mut stream) = self.log.stream(Start::From(Seq(seq))) else { return };
        let Ok(Some(batch)) = stream.try_next() else { return };
        let mut bytes = 0;
        for record in &batch {
            ahead.through = record.seq.0;
            bytes += record.payload.len() as u64;
            // What does not fit would push out what was just read.
            if bytes > self.options.cache_size / 2 {
                return;
            }
            let (slot, ballot, value) = match Record::decode(record.payload) {
                Ok(
                    Record::Accept { slot, ballot, value } | Record::Chosen { slot, ballot, value },
                ) => (slot, ballot, value),
                _ => continue,
            };
            let crate::index::Found::Page(page) = self.index.find(number_of(slot), guard) else {
                continue;
            };
            let place = page.slot(slot);
            let _terms = self.gate.of_slot(slot);
            let word = place.word();
            let here = word.state() == State::Committed && word.seq() == record.seq.0;
            if here && place.held().load(guard).is_none() {
                // Durable long ago: any marker at or below the mark says so.
                place.held().swap(Some(hold(slot, ballot, value, record.seq.0)), guard);
                self.settled.lock().cache(slot, record.seq.0, charge(value.len()));
            }
        }
        self.settle(guard);
    }
}
