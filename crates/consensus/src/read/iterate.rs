//! Iterating over slots in slot order, whatever the order of accepts and commits was.
//!
//! # Correctness under truncation
//!
//! An iteration takes no lock, so truncation and `install` run concurrently, and a truncated slot
//! looks like one that was never used. The floor distinguishes the two. Truncation first raises the
//! floor, and then empties slots and drops pages, each with a release store. An iteration finds a
//! slot empty, or a page missing, with an acquire load, and then reads the floor. If truncation
//! emptied the slot, the floor that it reads covers the slot, and the iteration returns `Truncated`
//! instead of treating the slot as a gap. So what a visitor has seen is complete: between the first
//! slot and the current one, no slot was skipped because it was truncated.

use std::ops::{Bound, ControlFlow, RangeBounds};

use crossbeam_epoch::Guard;
use esker_disk::planted::{Bug, is_planted};
use esker_log::{Seq, Start};

use crate::base::slot::{SLOTS_PER_PAGE, Slot, first_slot_of, page_of};
use crate::errors::protocol_errors::ReadError;
use crate::index::page::{Page, State};
use crate::memory::entry::Entry;
use crate::memory::value_budget::charge;
use crate::memory::value_pool::new_value;
use crate::record::Record;
use crate::state::inner::{ConsensusLog, Inner};
use crate::storage_error::StorageError;

/// The most slots visited under one guard.
const SLOTS_PER_GUARD: u64 = 1024;

/// The marker of a value that is read back into memory.
const READ_BACK_MARKER: u64 = 1;

/// Options of an iteration. [`IterateOptions::default`] visits committed entries and fails at the
/// first that cannot be read.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct IterateOptions {
    /// Also visit entries that are accepted and not committed, or whose commit is not durable yet.
    pub include_uncommitted: bool,
    /// Skip entries that cannot be read or may be lost, and count and report them, instead of
    /// failing.
    pub skip_errors: bool,
}

impl IterateOptions {
    /// Sets [`IterateOptions::include_uncommitted`].
    #[must_use]
    pub fn include_uncommitted(mut self, include_uncommitted: bool) -> Self {
        self.include_uncommitted = include_uncommitted;
        self
    }

    /// Sets [`IterateOptions::skip_errors`].
    #[must_use]
    pub fn skip_errors(mut self, skip_errors: bool) -> Self {
        self.skip_errors = skip_errors;
        self
    }
}

/// The result of an iteration.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct IterationSummary {
    /// The number of entries visited.
    pub visited: u64,
    /// The number of entries skipped because they could not be read, or may be lost. An unreadable
    /// page of the index counts as one, under its first slot, because the content of its 4096 slots
    /// is unknown. So does a run of pages that may be lost.
    pub unreadable: u64,
    /// The first 1024 of them, with the reason.
    pub skipped: Vec<(Slot, StorageError)>,
    /// Whether the callback ended it.
    pub stopped: bool,
}

/// Visits an entry, or the error that takes its place.
type Each<'a> = dyn FnMut(Result<&Entry<'_>, ReadError>) -> Result<ControlFlow<()>, ReadError> + 'a;

/// The most reasons kept for skipped entries; further ones are only counted.
const SKIP_REASONS_MAX: usize = 1024;

impl ConsensusLog {
    /// Visits the entries of a range of slots in ascending order.
    ///
    /// Empty slots are skipped, truncated ones never are. A range without a start begins above the
    /// floor. A range that starts at or below the floor is refused.
    ///
    /// Blocks while values are read that are not in memory.
    ///
    /// Commits after the call are not visited: none above the highest slot that was committed at
    /// the call. A commit that fills a gap is visited only if its value was evicted from the cache
    /// before the iteration reached it.
    ///
    /// In a log whose corrupt records were quarantined, an empty slot may be a lost one. It counts
    /// as an entry that cannot be read, up to the highest slot that a record shows to be committed
    /// or, with `include_uncommitted`, up to the highest entry.
    ///
    /// Entries are borrowed for the visit only; see [`Entry::into_owned`].
    ///
    /// # Errors
    /// [`ReadError::Truncated`] when the range starts at or below the floor, or when truncation or
    /// [`install`](crate::Snapshots::install) passes slots that are still to be visited: what was
    /// visited before is complete. The error of the first entry that cannot be read, unless
    /// `skip_errors` is set. [`ReadError::Storage`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.learn(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// use std::ops::ControlFlow;
    ///
    /// use esker_consensus::IterateOptions;
    ///
    /// let mut values = Vec::new();
    /// log.iterate(Slot(0).., IterateOptions::default(), |entry| {
    ///     values.push(entry.value().to_vec());
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(values, [b"layer on layer"]);
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn iterate(
        &self,
        range: impl RangeBounds<Slot>,
        options: IterateOptions,
        mut visit: impl FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<IterationSummary, ReadError> {
        self.inner.refuse_if_closed()?;
        let mut done = IterationSummary::default();
        let Some((first, last)) = self.bounds(&range, options.include_uncommitted)? else {
            return Ok(done);
        };
        // Later commits are not visited.
        let known = match self.inner.options.sync_on_commit {
            true => self.inner.log.durable().0,
            false => self.inner.log.accepted().0,
        };
        let mut each = |found: Result<&Entry<'_>, ReadError>| match found {
            Ok(entry) => {
                done.visited += 1;
                Ok(visit(entry))
            }
            Err(ReadError::Storage(StorageError::CorruptedEntry { slot, cause }))
                if options.skip_errors =>
            {
                done.unreadable += 1;
                if done.skipped.len() < SKIP_REASONS_MAX {
                    done.skipped.push((slot, StorageError::CorruptedEntry { slot, cause }));
                }
                Ok(ControlFlow::Continue(()))
            }
            Err(error) => Err(error),
        };
        let known = Some(known).filter(|_| !options.include_uncommitted);
        let flow = self.go_through(first, last, known, &mut each)?;
        done.stopped = flow.is_break();
        Ok(done)
    }

    /// Returns the consecutive entries from the start of a range on, accepted or committed, as a
    /// protocol sends them to another node: up to the first slot without one, the end of the range,
    /// or `max_bytes` of values, of which each counts at least 64. If there is an entry, one is
    /// returned, whatever its size.
    ///
    /// A range without a start begins above the floor. Blocks while values are read that are not in
    /// memory. Copies no value.
    ///
    /// # Errors
    /// As [`ConsensusLog::iterate`]: [`ReadError::Truncated`] when the range starts at or below the
    /// floor.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # for slot in 0..3 {
    /// #     log.accept(Slot(slot), ballot, b"layer on layer")?.blocking_wait()?;
    /// # }
    /// let next = Slot(1); // what a follower lacks
    /// let entries = log.entries(next.., 1 << 20)?;
    /// assert_eq!(entries.len(), 2);
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn entries(
        &self,
        range: impl RangeBounds<Slot>,
        max_bytes: u64,
    ) -> Result<Vec<Entry<'static>>, ReadError> {
        self.inner.refuse_if_closed()?;
        let mut entries: Vec<Entry<'static>> = Vec::new();
        let Some((first, last)) = self.bounds(&range, true)? else { return Ok(entries) };
        let mut bytes = 0;
        let _: ControlFlow<()> = self.go_through(first, last, None, &mut |found| {
            let entry = found?;
            bytes += charge(entry.value().len());
            let follows = entry.slot().0 == first + entries.len() as u64;
            if !follows || (bytes > max_bytes && !entries.is_empty()) {
                return Ok(ControlFlow::Break(()));
            }
            entries.push(entry.clone().into_owned());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(entries)
    }

    /// Visits entries committed by a record up to `known`, from one slot to another, without
    /// counting. A later commit may be visited too, if nothing in memory identifies it.
    pub(crate) fn iterate_committed(
        &self,
        first: u64,
        last: u64,
        known: u64,
        visit: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ReadError> {
        self.go_through(first, last, Some(known), &mut |found| found.map(&mut *visit))
    }

    /// The range of slots that may have entries; `None` if there are none.
    fn bounds(
        &self,
        range: &impl RangeBounds<Slot>,
        uncommitted: bool,
    ) -> Result<Option<(u64, u64)>, ReadError> {
        let first = match range.start_bound() {
            Bound::Included(first) => Some(Some(first.0)),
            Bound::Excluded(before) => before.0.checked_add(1).map(Some),
            Bound::Unbounded => Some(None),
        };
        let last = match range.end_bound() {
            Bound::Included(last) => Some(last.0),
            Bound::Excluded(end) => end.0.checked_sub(1),
            Bound::Unbounded => Some(u64::MAX),
        };
        let (Some(first), Some(last)) = (first, last) else { return Ok(None) };
        if first.is_some_and(|first| first > last) {
            return Ok(None);
        }
        // Fixed at the call, whatever is committed later.
        let highest = self.inner.committed_range().map(|range| range.highest.0);
        // Read after the range: if truncation dropped the highest slot, the floor shows it.
        let start = self.inner.start();
        if let Some(first) = first {
            self.inner.keeps(first)?;
        }
        let end = match (self.inner.lost.slot_end(uncommitted), uncommitted) {
            // Lost slots may follow the last one that has an entry.
            (Some(end), _) => end.checked_sub(1).max(highest),
            (None, true) => Some(u64::MAX),
            (None, false) => highest,
        };
        let bounds = end.map(|end| (first.unwrap_or(start), last.min(end)));
        Ok(bounds.filter(|(first, last)| first <= last))
    }

    /// Visits slots. With `known`, only entries committed by a record up to it, as far as memory
    /// shows.
    fn go_through(
        &self,
        first: u64,
        last: u64,
        known: Option<u64>,
        each: &mut Each<'_>,
    ) -> Result<ControlFlow<()>, ReadError> {
        let inner = &*self.inner;
        // If records were quarantined, an empty slot may have had an entry. `last` is bounded by
        // what the surviving records show.
        let lost = inner.lost.range().is_some();
        let mut slot = first;
        while slot <= last {
            inner.refuse_if_closed()?;
            // A guard that is held for long delays the reuse of memory.
            let guard = crossbeam_epoch::pin();
            let next = inner.index.next_page(page_of(slot), &guard);
            // The floor is read after the table: pages that truncation dropped are no gap.
            inner.keeps(slot)?;
            let is_lost = lost && next.is_none_or(|number| number > page_of(slot));
            if is_lost && each(Err(inner.missing(slot)))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let Some(number) = next else { break };
            slot = slot.max(first_slot_of(number));
            if slot > last {
                break;
            }
            let page = match inner.page(slot, &guard) {
                Ok(Some(page)) => page,
                Ok(None) => continue,
                Err(error) => {
                    // Truncation may just have dropped the page and its record.
                    inner.keeps(slot)?;
                    if each(Err(error.into()))?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    let Some(next) = (number + 1).checked_mul(SLOTS_PER_PAGE as u64) else { break };
                    slot = next;
                    continue;
                }
            };
            let end = last.min(slot.saturating_add(SLOTS_PER_GUARD - 1));
            if self.visit_page(&page, &mut slot, end, (known, lost), &guard, each)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let Some(next) = slot.checked_add(1) else { break };
            slot = next;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Visits the slots of a page from `slot` to `end`, and leaves the last one of them in `slot`.
    fn visit_page(
        &self,
        page: &Page,
        slot: &mut u64,
        end: u64,
        (known, lost): (Option<u64>, bool),
        guard: &Guard,
        each: &mut Each<'_>,
    ) -> Result<ControlFlow<()>, ReadError> {
        let inner = &*self.inner;
        let uncommitted = known.is_none();
        let mut ahead = ReadAhead::default();
        for (n, indexed) in page.from(*slot).take_while(|(n, _)| *n <= end) {
            let word = indexed.word();
            *slot = n;
            // As above: truncation emptied the slot, or dropped its page without changing the
            // slot.
            match inner.keeps(n) {
                Err(_) if is_planted(Bug::AnswerSkipsTruncatedSlots) => continue,
                kept => kept?,
            }
            if word.state() == State::Empty || (word.state() == State::Accepted && !uncommitted) {
                if lost && each(Err(inner.missing(n)))?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            match indexed.resident().load(guard) {
                Some(resident) if known.is_some_and(|known| resident.marker() > known) => {
                    continue;
                }
                None if word.seq() > 0 => inner.read_ahead(word.seq(), &mut ahead, guard),
                _ => {}
            }
            let flow = match inner.entry_at(n, indexed, guard) {
                Ok(entry) if !entry.is_committed() && !uncommitted => continue,
                Ok(entry) => each(Ok(&entry))?,
                // Only `truncate_from` empties a slot, and it drops only uncommitted entries.
                Err(ReadError::SlotNotFound { .. }) => continue,
                Err(error @ ReadError::Truncated { .. }) => return Err(error),
                Err(error) => each(Err(error))?,
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The last record that was read ahead.
#[derive(Debug, Default)]
struct ReadAhead {
    through: u64,
}

impl Inner {
    /// Loads the values of the records from this one on into memory, as many as one read returns.
    /// An error is harmless: the single read that follows reports it.
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
            // Further values would evict those just read.
            if bytes > self.options.cache_size / 2 {
                return;
            }
            let (slot, ballot, value) = match Record::decode(record.payload) {
                Ok(
                    Record::Accept { slot, ballot, value } | Record::Chosen { slot, ballot, value },
                ) => (slot, ballot, value),
                _ => continue,
            };
            let crate::index::page_table::PageLookup::Page(page) =
                self.index.find(page_of(slot), guard)
            else {
                continue;
            };
            let indexed = page.slot(slot);
            let Ok(_slot_lock) = self.slot_lock(slot) else { return };
            let word = indexed.word();
            let here = word.state() == State::Committed && word.seq() == record.seq.0;
            if here && indexed.resident().load(guard).is_none() {
                // The lowest marker means committed and durable long ago. The record's own number
                // would be wrong: truncation may have copied the value forward since. An earlier
                // iteration would then treat the slot as committed after it began.
                indexed
                    .resident()
                    .swap(Some(new_value(slot, ballot, value, READ_BACK_MARKER)), guard);
                self.frontier.lock().cache(slot, record.seq.0, charge(value.len()));
            }
        }
        self.count_durable(guard);
    }
}
