//! Checkpoints of the index, so that opening reads what changed since the last one and not everything.
//!
//! A checkpoint is records of the log like everything else: the pages of the index that changed, and
//! a root that names all pages, with promise, floor, frontier and counts. The log's app metadata
//! name the root. They say nothing that the log does not say: without them, or where they lead nowhere,
//! everything is replayed.
//!
//! A checkpoint is *fuzzy*: callers go on while it is taken. No caller waits for it longer than for
//! another caller, and it needs memory for one page and for the table of pages.
//!
//! 1. With all locks held for a moment, it notes the *replay point*, the number of the next record, and
//!    with it promise, floor, frontier, and the lowest and highest committed slot. (Under all locks no
//!    decision is under way: each one before is in the index, and none after has a record yet.)
//! 2. It takes the pages one after another: clears the page's dirty flag, passes through all locks one at
//!    a time, copies the page's words without a lock, and appends the copy. Each [`WINDOW`] bytes it
//!    waits until they are durable, so that the staging memory stays the callers'.
//! 3. It appends the root, waits until that is durable, and stores the app metadata.
//!
//! # The crash argument
//!
//! Recovery begins with the pages that the root names and replays every record from the replay point on.
//! Claim: it comes to the state that a replay of all records comes to.
//!
//! *Each slot by itself.* What a record does to a slot depends on that slot alone, so it is enough to
//! look at one slot. Its word in the copy is its state after some record, k. Every record before the
//! replay point is among those up to k: it was applied before the replay point was noted, and the copy was
//! made after that. So the records after k are all replayed, and so are, for a second time, those from
//! the replay point up to k. Those must change nothing, or what a later one of them takes back again:
//!
//! | the word names | replayed record | what happens |
//! |---|---|---|
//! | this record or a later one | accept, chosen, cut, commit | nothing: it is in the word |
//! | an earlier one, accepted | accept, commit, cut | it came after k, and is applied |
//! | an earlier one, committed | accept, commit, cut | nothing: a committed slot never changes |
//! | none: empty | accept, chosen | applied. If it came after k, rightly so. If not, a cut or a floor emptied the slot after it and up to k, and is replayed after it |
//! | none: empty | commit | nothing. The accept that it names is in no record from the replay point on, so a floor emptied the slot before the copy, and is replayed |
//!
//! A commit marker names no record of its own in the word. If it came up to k, the slot is committed
//! in the copy. If not, the word names the accept that it commits, an earlier record.
//!
//! *Copies that truncation made* (an accept or a chosen value, appended again) follow the same rules: the
//! word names the copy only once that is durable, or the original, and both hold the same value.
//! A segment is dropped only after a checkpoint that began after the words were moved.
//!
//! *Pages dropped below a new floor* are missing from the root's table. Their slots are empty for the
//! replay, until it comes to the record of the floor, which is after the replay point. A page that a
//! raised floor brought into reach is left out where the root's own floor does not reach it: everything
//! in it is replayed.
//!
//! *Counts.* The root names, for each page, how many slots of *the copy* are committed. Their sum
//! is what recovery begins with, and a slot is counted only when its word becomes committed by the replay:
//! a commit between the replay point and the copy is in the sum, and one after the copy is replayed over
//! an accepted word. The lowest and highest committed slot, promise, floor and frontier only grow (or
//! follow the floor), so they are those of the replay point, and replaying merges the rest.
//!
//! *No change is missed.* Who changes a slot stores the word and then sets the dirty flag, under the slot's
//! lock. The checkpoint clears the flag and then passes through that lock. A change before the pass is in
//! the copy. A change after it finds the flag cleared, and sets it for the next checkpoint.
//!
//! *Order.* Each page is appended after everything that its copy speaks of, and the root after all pages:
//! where the root is durable, so is all of it. A crash, an error or a close between leaves the app metadata
//! before, whose root and pages are still there: truncation drops nothing that those need. Pages that were
//! appended without a root serve the next one; they are the newest copies of pages that did not change.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::base::slot::number_of;
use crate::component::COMPONENT;
use crate::index::page::Copied;
use crate::index::page_table::{Found, Index};
use crate::index::slot_locks::AllLocks;
use crate::outcome::{Error, Result};
use crate::record::{self, PageAt, Root};
use crate::state::background::{self, Background, Job, Next, Work};
use crate::state::inner::{ConsensusLog, Inner};

/// The most bytes of pages that are appended and not yet durable, while callers go on and while none
/// does.
const WINDOW: u64 = 256 << 10;
const CLOSING_WINDOW: u64 = 4 << 20;

/// About what a page's record takes without its words.
const PAGE_RECORD: u64 = 64;

impl ConsensusLog {
    /// Makes everything committed durable, and a checkpoint of the index. What is uncommitted stays
    /// as it is. Blocks; other operations go on meanwhile.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Closed`], also when the log is closed meanwhile, [`Error::Log`].
    pub fn checkpoint(&self) -> Result<()> {
        let _upkeep = self.inner.maintenance.lock();
        self.inner.checkpoint(0)
    }
}

/// A checkpoint that is being taken.
pub(crate) struct Checkpoint {
    root: Root,
    /// The first page that was not looked at.
    next: u64,
    /// Pages whose record comes before this one are stored anew, whether they changed or not.
    rewrite_below: u64,
    window: u64,
    /// Kept, so that they ask for no commit of their own.
    tickets: Vec<esker_log::Ticket>,
    /// Bytes appended since the last wait.
    bytes: u64,
    appended: u64,
}

impl Inner {
    /// Schedules a checkpoint when one is due. The caller holds no lock of the log.
    #[inline]
    pub(crate) fn checkpoint_if_due(self: &Arc<Self>) {
        if self.is_checkpoint_due() {
            background::schedule(self, Job::Checkpoint);
        }
    }

    #[inline]
    fn is_checkpoint_due(&self) -> bool {
        self.since_checkpoint() >= self.options.checkpoint_every
            && self.newest.load(Relaxed) >= self.retry_at.load(Relaxed)
    }

    /// The background job. After a failure it waits for some more records before the next attempt.
    fn automatic_checkpoint(&self) -> Result<()> {
        let _upkeep = self.maintenance.lock();
        if !self.is_checkpoint_due() {
            return Ok(());
        }
        let pause = self.options.checkpoint_every / 8;
        self.retry_at.store(self.newest.load(Relaxed).saturating_add(pause), Relaxed);
        self.checkpoint(0)?;
        self.retry_at.store(0, Relaxed);
        Ok(())
    }

    /// The caller holds `maintenance` and no lock of a slot. Pages that were stored before `rewrite_below` are
    /// stored anew. Ends with [`Error::Closed`] between two pages when the log is closed.
    pub(crate) fn checkpoint(&self, rewrite_below: u64) -> Result<()> {
        self.count_durable(&crossbeam_epoch::pin());
        let locks = self.locks.lock_all();
        self.writable(&locks.promise_state())?;
        let mut checkpoint = self.begin_checkpoint(&locks, rewrite_below);
        drop(locks);
        while self.take_page(&mut checkpoint)? {
            self.background.go_on()?;
        }
        self.end_checkpoint(checkpoint)
    }

    /// For closing: the log takes nothing any more.
    pub(crate) fn last_checkpoint(&self, mut checkpoint: Checkpoint) -> Result<()> {
        checkpoint.window = CLOSING_WINDOW;
        while self.take_page(&mut checkpoint)? {}
        self.end_checkpoint(checkpoint)
    }

    /// Notes the replay point.
    pub(crate) fn begin_checkpoint(&self, locks: &AllLocks<'_>, rewrite_below: u64) -> Checkpoint {
        let tracker = self.tracker.lock();
        let range = tracker.range_with_pending();
        let root = Root {
            replay: self.log.accepted().0 + 1,
            promise: locks.promise_state().promise,
            start: self.start(),
            next: tracker.decided(),
            count: 0,
            // What the replay finds is merged with these.
            lowest: range.map_or(u64::MAX, |range| range.lowest),
            highest: range.map_or(0, |range| range.highest),
        };
        let (next, tickets) = (number_of(root.start), Vec::new());
        Checkpoint { root, next, rewrite_below, window: WINDOW, tickets, bytes: 0, appended: 0 }
    }

    /// Takes the next page, if it changed; `false` when there is none.
    pub(crate) fn take_page(&self, checkpoint: &mut Checkpoint) -> Result<bool> {
        let next = self.index.next_page(checkpoint.next, &crossbeam_epoch::pin());
        let Some(number) = next else { return Ok(false) };
        checkpoint.next = number + 1;
        let Some(copy) = self.copy_page(number, checkpoint.rewrite_below)? else { return Ok(true) };
        let Copied { first, words, committed, open } = &copy;
        let ticket = match self.append_internal(|out| record::page(out, number, *first, words)) {
            Ok(ticket) => ticket,
            Err(error) => {
                if let Found::Page(page) = self.index.find(number, &crossbeam_epoch::pin()) {
                    page.touch();
                }
                return Err(error);
            }
        };
        let page = PageAt { number, seq: ticket.seq().0, open: *open, committed: *committed };
        // `false` where the floor passed it by: then no root names it.
        self.index.store(&page, &crossbeam_epoch::pin());
        checkpoint.tickets.push(ticket);
        checkpoint.appended += 1;
        checkpoint.bytes += PAGE_RECORD + 8 * words.len() as u64;
        if checkpoint.bytes >= checkpoint.window {
            checkpoint.bytes = 0;
            let last = checkpoint.tickets.pop();
            last.map_or(Ok(()), |ticket| ticket.wait().map(drop)).map_err(|e| self.fail(e))?;
            checkpoint.tickets.clear();
        }
        Ok(true)
    }

    /// What a checkpoint has to store of a page.
    fn copy_page(&self, number: u64, rewrite_below: u64) -> Result<Option<Copied>> {
        let guard = crossbeam_epoch::pin();
        let rewrite = self.index.stored_at(number, &guard) < rewrite_below;
        match self.index.find(number, &guard) {
            Found::Page(page) => {
                let page = page.counted();
                // Not held while others are waited for.
                drop(guard);
                if !page.take_dirty() && !rewrite {
                    return Ok(None);
                }
                self.locks.pass();
                Ok(Some(page.copy()))
            }
            Found::Stored(seq) if rewrite => {
                drop(guard);
                let copy = |first, words: record::Words<'_>| Copied::stored(first, words.iter());
                self.stored_page(number, seq, copy).map(Some)
            }
            Found::Stored(_) | Found::Nothing => Ok(None),
        }
    }

    /// Appends the root, and names it in the app metadata once it is durable.
    pub(crate) fn end_checkpoint(&self, checkpoint: Checkpoint) -> Result<()> {
        let Checkpoint { mut root, appended, tickets, .. } = checkpoint;
        let mut pages = self.index.stored(&crossbeam_epoch::pin());
        let limit = number_of(Index::limit(root.start));
        pages.retain(|page| page.number < limit);
        root.count = pages.iter().map(|page| page.committed).sum();
        let ticket = self.append_internal(|out| record::root(out, &root, &pages))?;
        let seq = ticket.seq().0;
        ticket.wait().map_err(|error| self.fail(error))?;
        drop(tickets);
        let stored = self.log.put_app_metadata(COMPONENT, &seq.to_le_bytes());
        stored.map_err(|error| self.fail(error))?;
        // What an opening would replay now, without the records of the checkpoint itself.
        self.checkpointed.store(root.replay + appended, Relaxed);
        Ok(())
    }
}

impl Work for Inner {
    fn background(&self) -> &Background {
        &self.background
    }

    fn work(self: &Arc<Self>, job: Job) -> Result<Next> {
        match job {
            Job::Checkpoint => self.automatic_checkpoint().map(|()| Next::Done),
            Job::Reclaim => self.reclaim_job(),
        }
    }
}

/// The number of the root that app metadata name.
pub(crate) fn named(metadata: &[u8]) -> Result<u64> {
    let bytes: Option<[u8; 8]> = metadata.try_into().ok();
    bytes.map(u64::from_le_bytes).ok_or(Error::CorruptedRecord { seq: 0, what: "the note is cut" })
}

#[cfg(test)]
mod fuzzy;
