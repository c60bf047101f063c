//! Reclaiming the space of truncated slots, in the background.
//!
//! Raising the floor and reclaiming space are two steps. A truncation returns when the floor is
//! durable. A background job, driven by [`esker_log::reclaim`], drops the segments below it. The
//! crash argument for a pass is documented there. This crate provides:
//!
//! - *The barrier* takes all slot locks once: an operation that appends a value stores its word
//!   before it releases the slot's lock.
//! - *Live* records are those with the value of a slot at or above the floor, committed or not, and
//!   the pages of the index that no later checkpoint stored. Everything else in a segment
//!   (promises, floors, commit markers, cuts, roots) is in the checkpoint that precedes dropping
//!   the segment.
//! - *A copy* is an accept if the slot is accepted, and a chosen value if it is committed. It is
//!   appended under the slot's lock, if the word still names the original. So a replay of both
//!   reaches the same state: an accept that is the slot's current one is replayed again, and a
//!   committed slot gets the value that it has.
//! - *Before the drop* a checkpoint is durable whose pages are all at or after the cut.
//!
//! On a full disk the checkpoint and the copies share the reserve of the log. Copies leave the room
//! that changed pages and the root take. Automatic checkpoints come early enough that these fit:
//! see [`checkpoint`](super::checkpoint).
//!
//! After a crash at any point the log opens, with all or less of its space in use. The next
//! truncation, or [`Maintenance::reclaim`](crate::Maintenance::reclaim), continues from there.
//!
//! Each pass first counts the live bytes by scanning the index. A word holds the size of its
//! value's record (see `page`), so the scan reads only memory, and the records of pages that are
//! not in memory.

use std::sync::Arc;
use std::time::Duration;

use esker_disk::planted::{Bug, is_planted};
use esker_log::component::Purpose;
use esker_log::reclaim::{self, Effort, Live, Owner, Reclaimed, stored_size};
use esker_log::{Seq, Ticket};

use crate::base::slot::{Slot, first_slot_of, page_of};
use crate::index::page::{Page, State, Word};
use crate::index::page_table::PageLookup;
use crate::record::{self, Record};
use crate::state::background::{self, Job, JobOutcome};
use crate::state::inner::Inner;
use crate::storage_error::{StorageError, refuse_if_forked};

/// While callers append, a throttled pass pauses for this multiple of the time that it worked.
const PAUSE_PER_WORK: u32 = 3;
/// The longest pause of a throttled pass.
const PASS_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Bytes of a page's record before its words.
const PAGE_HEADER_BYTES: usize = 11;

impl Inner {
    /// Drops segments as long as at most half of their bytes are live.
    pub(crate) fn reclaim_now(&self) -> Result<Reclaimed, StorageError> {
        refuse_if_forked()?;
        // Later segments would keep it at work for as long as callers append.
        let end = self.log.accepted();
        let mut all = Reclaimed::default();
        loop {
            match self.reclaim_once(Effort::Full) {
                Ok(done) => {
                    all += done;
                    if done.segments == 0 || self.log.storage().metadata().after >= end {
                        return Ok(all);
                    }
                }
                Err(error) if ReclaimPass::is_no_space(&error) && all.segments > 0 => {
                    return Ok(all);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Schedules reclaiming in the background. The caller holds no lock.
    pub(crate) fn reclaim_soon(self: &Arc<Self>) {
        // The newest segment is still written to, so it cannot be dropped.
        if self.log.storage().segments().len() > 1 {
            background::schedule(self, Job::Reclaim);
        }
    }

    /// Runs the background job: one pass, so that other jobs get their turn.
    pub(crate) fn reclaim_job(&self) -> Result<JobOutcome, StorageError> {
        let done = self.reclaim_once(Effort::Lazy)?;
        Ok(if done.segments > 0 { JobOutcome::RunAgain } else { JobOutcome::Done })
    }

    fn reclaim_once(&self, effort: Effort) -> Result<Reclaimed, StorageError> {
        let Some(_no_backup) = self.reclaiming.try_removal() else {
            return Ok(Reclaimed::default());
        };
        let Some(_pass) = self.reclaiming.lock_pass() else { return Ok(Reclaimed::default()) };
        self.refuse_if_not_writable()?;
        self.reclaiming.swap_newest(self.log.accepted().0);
        let pass = ReclaimPass { inner: self, throttled: effort == Effort::Lazy };
        let done = reclaim::run(&self.log, &pass, effort)?;
        self.reclaiming.add(done);
        Ok(done)
    }

    /// Visits the live records that a page names: one per slot with a value.
    fn live_in_page(&self, page: &Page, start: u64, visit: &mut dyn FnMut(Live)) {
        for (_, indexed) in page.used_from(start) {
            live_word(indexed.word(), visit);
        }
    }
}

fn live_word(word: Word, visit: &mut dyn FnMut(Live)) {
    if word.state() != State::Empty && word.seq() > 0 {
        visit(Live::copied(Seq(word.seq()), word.size()));
    }
}

/// The bytes that a page takes in a checkpoint.
fn page_bytes(page: &Page) -> u64 {
    stored_size(PAGE_HEADER_BYTES + 8 * page.stored_words())
}

/// One reclaim pass over a consensus log.
struct ReclaimPass<'a> {
    inner: &'a Inner,
    throttled: bool,
}

impl ReclaimPass<'_> {
    fn each_in(
        &self,
        number: u64,
        start: u64,
        visit: &mut dyn FnMut(Live),
    ) -> Result<(), StorageError> {
        let inner = self.inner;
        loop {
            let guard = crossbeam_epoch::pin();
            let stored = inner.index.stored_at(number, &guard);
            match inner.index.find(number, &guard) {
                PageLookup::Absent => return Ok(()),
                PageLookup::Page(page) => {
                    inner.live_in_page(&page, start, visit);
                    // The next checkpoint stores a changed page again in any case.
                    if stored > 0 && !page.is_dirty() {
                        visit(Live::rewritten(Seq(stored), page_bytes(&page)));
                    }
                    return Ok(());
                }
                PageLookup::Stored(seq) => {
                    let view = match inner.log.read(seq) {
                        Ok(view) => view,
                        Err(_) if inner.index.stored_at(number, &guard) != seq => continue,
                        Err(cause) => {
                            let slot = Slot(first_slot_of(number).max(start));
                            return Err(StorageError::CorruptedEntry { slot, cause: cause.into() });
                        }
                    };
                    let nonsense = |what| StorageError::CorruptedRecord { seq: Seq(seq), what };
                    let Record::Page { number: found, first, words } =
                        Record::decode(&view).map_err(nonsense)?
                    else {
                        return Err(nonsense("it is no page"));
                    };
                    let base = first_slot_of(number) + u64::from(first);
                    for (slot, bits) in (base..).zip(words.iter()) {
                        let word = Word::from_bits(bits).filter(|_| found == number);
                        let word = word.ok_or(nonsense("a slot of the page cannot be"))?;
                        if slot >= start {
                            live_word(word, visit);
                        }
                    }
                    visit(Live::rewritten(Seq(seq), stored_size(view.payload().len())));
                    return Ok(());
                }
            }
        }
    }
}

impl Owner for ReclaimPass<'_> {
    type Error = StorageError;
    type Key = u64;
    // A copy changes its page, which the checkpoint before the drop stores again.
    const CHECKPOINT_GROWS: bool = true;

    fn barrier(&self) -> Result<(), StorageError> {
        drop(self.inner.all_locks()?);
        Ok(())
    }

    fn each_live(&self, visit: &mut dyn FnMut(Live)) -> Result<(), StorageError> {
        let start = self.inner.start();
        let numbers = self.inner.index.numbers(page_of(start), &crossbeam_epoch::pin());
        for number in numbers {
            self.inner.background.go_on()?;
            self.each_in(number, start, visit)?;
        }
        Ok(())
    }

    fn bytes_before_drop(&self) -> u64 {
        let guard = crossbeam_epoch::pin();
        let pages = self.inner.index.in_memory(&guard);
        let changed: u64 =
            pages.iter().filter(|page| page.is_dirty()).map(|page| page_bytes(page)).sum();
        let kept = self.inner.index.numbers(page_of(self.inner.start()), &guard).len();
        changed + record::root_bytes(kept)
    }

    fn is_no_space(error: &StorageError) -> bool {
        error.is_no_space()
    }

    fn append_again(
        &self,
        record: &esker_log::Record<'_>,
        purpose: Purpose,
    ) -> Result<Option<(u64, Ticket)>, StorageError> {
        let (inner, seq) = (self.inner, record.seq.0);
        let nonsense = |what| StorageError::CorruptedRecord { seq: Seq(seq), what };
        let decoded = Record::decode(record.payload).map_err(nonsense)?;
        let (Record::Accept { slot, ballot, value } | Record::Chosen { slot, ballot, value }) =
            decoded
        else {
            return Err(nonsense("it does not hold a slot's value"));
        };
        let guard = crossbeam_epoch::pin();
        // Read the page before taking the lock.
        if inner.page(slot, &guard)?.is_none() {
            return Ok(None);
        }
        let promise_state = inner.slot_lock(slot)?;
        inner.writable(&promise_state)?;
        if slot < inner.start() {
            return Ok(None);
        }
        let Some(page) = inner.page(slot, &guard)? else { return Ok(None) };
        let word = page.slot(slot).word();
        if word.state() == State::Empty || word.seq() != seq {
            return Ok(None);
        }
        let encode = |out: &mut Vec<u8>| match word.state() {
            State::Committed => record::chosen(out, slot, ballot, value),
            State::Accepted | State::Empty => record::accept(out, slot, ballot, value),
        };
        let ticket = inner.append_copy(encode, purpose)?;
        Ok(Some((slot, ticket)))
    }

    fn moved(&self, slot: u64, from: Seq, to: Seq) -> Result<(), StorageError> {
        let inner = self.inner;
        let guard = crossbeam_epoch::pin();
        let _slot_lock = inner.slot_lock(slot)?;
        // The floor may have passed the slot since.
        let Some(page) = inner.page(slot, &guard)? else { return Ok(()) };
        debug_assert!(to > from, "a copy precedes its original");
        let indexed = page.slot(slot);
        let word = indexed.word();
        let is_same = word.seq() == from.0 || is_planted(Bug::AcceptCopiedOverNewer);
        if is_same && word.state() != State::Empty {
            indexed.set_word(word.moved(to.0));
            page.touch();
        }
        Ok(())
    }

    fn before_drop(&self, cut: Seq) -> Result<(), StorageError> {
        let _running = self.inner.lock_checkpoints()?;
        self.inner.background.go_on()?;
        self.inner.checkpoint(cut.0)
    }

    fn pace(&self, took: Duration) -> Result<(), StorageError> {
        let inner = self.inner;
        inner.background.go_on()?;
        let newest = inner.log.accepted().0;
        let before = inner.reclaiming.swap_newest(newest);
        if self.throttled && !inner.background.is_inline() && newest != before {
            inner.background.pause((took * PAUSE_PER_WORK).min(PASS_PAUSE_MAX))?;
        }
        Ok(())
    }
}
