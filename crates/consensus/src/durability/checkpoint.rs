//! Checkpoints of the index. With one, opening reads only what changed since, not the whole log.
//!
//! A checkpoint consists of log records: the changed pages of the index, and a root that names all
//! pages, with promise, floor, frontier and counts. The log's app metadata name the root. They hold
//! nothing that the log does not: if they are missing or invalid, opening replays everything.
//!
//! A checkpoint is *fuzzy*: callers continue while it is taken. No caller waits for it longer than
//! for another caller. It needs memory for one page and for the table of pages.
//!
//! 1. While it briefly holds all locks, it records the *replay point* (the number of the next
//!    record), promise, floor, frontier, and the lowest and highest committed slot. (Under all
//!    locks no decision is in progress: each earlier one is in the index, and no later one has a
//!    record yet.)
//! 2. It takes the pages one by one. It clears the page's dirty flag, acquires and releases every
//!    lock in turn, copies the page's words without a lock, and appends the copy. After each
//!    [`UNSYNCED_BYTES_MAX`] bytes it waits until they are durable, so that callers keep the
//!    staging memory.
//! 3. It appends the root, waits until that is durable, and stores the app metadata.
//!
//! # The crash argument
//!
//! Recovery starts with the pages that the root names and replays every record from the replay
//! point on. It reaches the same state as a replay of all records, for these reasons.
//!
//! *Slots are independent.* The effect of a record on a slot depends on that slot alone, so one
//! slot is enough to consider. Its word in the copy is its state after some record, k. Every record
//! before the replay point is at or before k: it was applied before the replay point was recorded,
//! and the copy was made after that. So all records after k are replayed. The records from the
//! replay point up to k are replayed a second time. Those must change nothing, or only what a later
//! one of them undoes:
//!
//! | the word names | replayed record | result |
//! |---|---|---|
//! | this record or a later one | accept, chosen, cut, commit | nothing: the word includes it |
//! | an earlier one, accepted | accept, commit, cut | the record is after k, and is applied |
//! | an earlier one, committed | accept, commit, cut | nothing: a committed slot never changes |
//! | none: empty | accept, chosen | applied: see (a) |
//! | none: empty | commit | nothing: see (b) |
//!
//! (a) If the record is after k, applying it is correct. If not, a cut or a floor emptied the slot
//! after it and up to k, and is replayed after it.
//!
//! (b) The accept that it names is in no record from the replay point on. So a floor emptied the
//! slot before the copy, and is replayed.
//!
//! A commit marker is not named by the word. If it is at or before k, the slot is committed in the
//! copy. If not, the word names the accept that it commits, an earlier record.
//!
//! *Copies that truncation made* (an accept or a chosen value, appended again) follow the same
//! rules. The word names either the copy, and then the copy is durable, or the original; both hold
//! the same value. A segment is dropped only after a checkpoint that began after the words were
//! updated.
//!
//! *Pages dropped below a new floor* are missing from the root's table. Their slots are empty
//! during the replay, until it reaches the record of the floor, which is after the replay point. A
//! page that only a raised floor brought into range is omitted if the root's own floor does not
//! reach it: all its records are replayed.
//!
//! *Counts.* For each page the root names how many slots of *the copy* are committed. Recovery
//! starts with the sum, and counts a slot only when the replay changes its word to committed. A
//! commit between the replay point and the copy is in the sum; a commit after the copy is replayed
//! over an accepted word. The lowest and highest committed slot, promise, floor and frontier only
//! grow (or follow the floor). The root holds them as of the replay point, and the replay merges
//! the rest.
//!
//! *No change is missed.* An operation that changes a slot stores the word and then sets the dirty
//! flag, under the slot's lock. The checkpoint clears the flag and then acquires and releases that
//! lock. A change before that is in the copy. A change after it finds the flag cleared, and sets it
//! for the next checkpoint.
//!
//! *A full disk.* Reclaiming frees space only after a checkpoint, which then has to fit in what the
//! log's reserve lends, at least half of it. It stores eight bytes for each slot that changed since
//! the last one, if these follow one another. So one is taken after as many records as fill a
//! quarter of the reserve, also where `checkpoint_every` allows more. The checkpoint of a close
//! frees nothing, so it leaves the reserve alone: logs that are opened and closed would use it up.
//!
//! *Order.* Each page is appended after every record that its copy reflects, and the root after all
//! pages: if the root is durable, all of them are. A crash, an error or a close before the last
//! step leaves the previous app metadata. Their root and pages are still in the log, because
//! truncation drops nothing that they need. Pages appended without a root are used by the next one;
//! they are the newest copies of pages that did not change.

use std::sync::Arc;

use esker_disk::planted::{Bug, is_planted};
use esker_log::{RECORD_LIMIT_MAX, Ticket};
use parking_lot::ReentrantMutexGuard;

use crate::base::slot::{first_slot_of, page_of};
use crate::component::COMPONENT;
use crate::durability::metadata::Metadata;
use crate::index::page::PageCopy;
use crate::index::page_table::{Index, PAGES_MAX, PageLookup};
use crate::index::slot_locks::AllLocks;
use crate::record::{self, PageAt, Root};
use crate::state::background::{self, Background, Job, JobOutcome, JobRunner};
use crate::state::commit_tracker::AppStateBytes;
use crate::state::inner::Inner;
use crate::storage_error::{StorageError, refuse_if_forked};

/// The most bytes of pages that are appended and not yet durable. `UNSYNCED_BYTES_MAX_CLOSING`
/// applies during a close, when no caller is active.
const UNSYNCED_BYTES_MAX: u64 = 256 << 10;
const UNSYNCED_BYTES_MAX_CLOSING: u64 = 4 << 20;

/// The approximate size of a page's record without its words.
const PAGE_RECORD_BYTES: u64 = 64;

// The root that names the most pages fits in one record.
const _: () = assert!(record::root_bytes(PAGES_MAX as usize) <= RECORD_LIMIT_MAX as u64);

/// A checkpoint in progress.
pub(crate) struct Checkpoint {
    root: Root,
    app_state: AppStateBytes,
    /// The first page that was not visited yet.
    next: u64,
    /// Pages whose record is before this one are stored again, whether or not they changed.
    rewrite_below: u64,
    window: u64,
    /// Whether it is that of a close, which frees nothing and so leaves the reserve alone.
    closing: bool,
    /// Kept, because dropping a ticket requests a commit.
    tickets: Vec<esker_log::Ticket>,
    /// Bytes appended since the last wait.
    bytes: u64,
    appended: u64,
}

impl Inner {
    /// Takes a checkpoint, whether or not one is due.
    pub(crate) fn checkpoint_now(&self) -> Result<(), StorageError> {
        refuse_if_forked()?;
        let _running = self.lock_checkpoints()?;
        self.checkpoint(0)
    }

    /// Waits for a checkpoint that another thread takes. Refuses a thread that takes one itself.
    pub(crate) fn lock_checkpoints(&self) -> Result<ReentrantMutexGuard<'_, ()>, StorageError> {
        let busy = esker_log::Error::Busy { what: "this thread takes a checkpoint" };
        self.checkpoints.lock().ok_or(StorageError::Log(busy))
    }

    /// Schedules a checkpoint when one is due. The caller holds no lock of the log.
    #[inline]
    pub(crate) fn checkpoint_if_due(self: &Arc<Self>) {
        if self.is_checkpoint_due() {
            background::schedule(self, Job::Checkpoint);
        }
    }

    #[inline]
    fn is_checkpoint_due(&self) -> bool {
        self.checkpoints.is_due(self.records.newest())
    }

    /// The background job. After a failure, the next attempt waits for more records.
    fn automatic_checkpoint(&self) -> Result<(), StorageError> {
        let Some(_running) = self.checkpoints.lock() else { return Ok(()) };
        if !self.is_checkpoint_due() {
            return Ok(());
        }
        self.checkpoints.defer(self.records.newest());
        self.checkpoint(0)?;
        self.checkpoints.succeeded();
        Ok(())
    }

    /// Takes a checkpoint. The caller holds the lock of `checkpoints` and no slot lock. Pages that
    /// were stored before `rewrite_below` are stored again. Returns [`StorageError::Closed`]
    /// between two pages if the log is closed.
    pub(crate) fn checkpoint(&self, rewrite_below: u64) -> Result<(), StorageError> {
        self.count_durable(&crossbeam_epoch::pin());
        let locks = self.all_locks()?;
        self.writable(&locks.promise_state())?;
        let mut checkpoint = self.begin_checkpoint(&locks, rewrite_below);
        drop(locks);
        while self.take_page(&mut checkpoint)? {
            self.background.go_on()?;
        }
        self.end_checkpoint(checkpoint)
    }

    /// Takes the checkpoint of a close: the log accepts nothing any more.
    pub(crate) fn last_checkpoint(&self, mut checkpoint: Checkpoint) -> Result<(), StorageError> {
        (checkpoint.window, checkpoint.closing) = (UNSYNCED_BYTES_MAX_CLOSING, true);
        while self.take_page(&mut checkpoint)? {}
        self.end_checkpoint(checkpoint)
    }

    /// Records the replay point.
    pub(crate) fn begin_checkpoint(&self, locks: &AllLocks<'_>, rewrite_below: u64) -> Checkpoint {
        let tracker = self.frontier.lock();
        let range = tracker.range_with_pending();
        let root = Root {
            replay: self.log.accepted().next().0,
            promise: match is_planted(Bug::PromiseLostOnTruncation) {
                true => None,
                false => locks.promise_state().promised(),
            },
            start: self.start(),
            next: tracker.decided(),
            count: 0,
            // The replay merges later commits into these.
            lowest: range.map_or(u64::MAX, |range| range.lowest.0),
            highest: range.map_or(0, |range| range.highest.0),
        };
        Checkpoint {
            root,
            app_state: tracker.newest_app_state(),
            next: page_of(root.start),
            rewrite_below,
            window: UNSYNCED_BYTES_MAX,
            closing: false,
            tickets: Vec::new(),
            bytes: 0,
            appended: 0,
        }
    }

    /// Stores the next page, if it changed. Returns `false` when no page is left.
    pub(crate) fn take_page(&self, checkpoint: &mut Checkpoint) -> Result<bool, StorageError> {
        let next = self.index.next_page(checkpoint.next, &crossbeam_epoch::pin());
        let Some(number) = next else { return Ok(false) };
        checkpoint.next = number + 1;
        let Some(copy) = self.copy_page(number, checkpoint.rewrite_below)? else { return Ok(true) };
        let PageCopy { first, words, committed, open } = &copy;
        let page = |out: &mut Vec<u8>| record::page(out, number, *first, words);
        let ticket = match self.append_for(checkpoint.closing, page) {
            Ok(ticket) => ticket,
            Err(error) => {
                if let PageLookup::Page(page) = self.index.find(number, &crossbeam_epoch::pin()) {
                    page.touch();
                }
                return Err(error);
            }
        };
        let page = PageAt { number, seq: ticket.seq().0, open: *open, committed: *committed };
        // `false` if the floor passed the page: then no root names it.
        self.index.store(&page, &crossbeam_epoch::pin());
        checkpoint.appended += 1;
        checkpoint.bytes += PAGE_RECORD_BYTES + 8 * words.len() as u64;
        if checkpoint.bytes < checkpoint.window {
            checkpoint.tickets.push(ticket);
            return Ok(true);
        }
        checkpoint.bytes = 0;
        ticket.blocking_wait().map_err(|error| self.fail(error))?;
        checkpoint.tickets.clear();
        Ok(true)
    }

    fn append_for(
        &self,
        closing: bool,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Ticket, StorageError> {
        if closing { self.append(encode) } else { self.append_internal(encode) }
    }

    /// Copies a page for a checkpoint; `None` if it does not have to be stored.
    fn copy_page(&self, number: u64, rewrite_below: u64) -> Result<Option<PageCopy>, StorageError> {
        let guard = crossbeam_epoch::pin();
        let rewrite = self.index.stored_at(number, &guard) < rewrite_below;
        match self.index.find(number, &guard) {
            PageLookup::Page(page) => {
                let page = page.counted();
                // Released before waiting for the locks.
                drop(guard);
                if !page.take_dirty() && !rewrite {
                    return Ok(None);
                }
                self.locks.pass();
                Ok(Some(page.copy()))
            }
            PageLookup::Stored(seq) if rewrite => {
                drop(guard);
                let copy = |first, words: record::Words<'_>| PageCopy::stored(first, words.iter());
                self.stored_page(first_slot_of(number), seq, copy).map(Some)
            }
            PageLookup::Stored(_) | PageLookup::Absent => Ok(None),
        }
    }

    /// Appends the root, and names it in the app metadata once it is durable.
    pub(crate) fn end_checkpoint(&self, checkpoint: Checkpoint) -> Result<(), StorageError> {
        let Checkpoint { mut root, app_state, appended, tickets, closing, .. } = checkpoint;
        let mut pages = self.index.stored(&crossbeam_epoch::pin());
        let limit = page_of(Index::limit(root.start));
        pages.retain(|page| page.number < limit);
        root.count = pages.iter().map(|page| page.committed).sum();
        debug_assert!(
            root.replay <= self.log.accepted().next().0,
            "a replay point is in the future"
        );
        let root_record = |out: &mut Vec<u8>| record::root(out, &root, &app_state, &pages);
        let ticket = self.append_for(closing, root_record)?;
        let seq = ticket.seq().0;
        ticket.blocking_wait().map_err(|error| self.fail(error))?;
        drop(tickets);
        debug_assert!(pages.iter().all(|page| page.seq < seq), "a root precedes its pages");
        let metadata = Metadata { root: seq, label: self.options.label.clone() };
        let stored = self.log.component().put_app_metadata(COMPONENT, &metadata.encode());
        stored.map_err(|error| self.fail(error))?;
        // The records that opening would replay now, without the checkpoint's own.
        self.checkpoints.set_covered(root.replay + appended);
        Ok(())
    }
}

impl JobRunner for Inner {
    fn background(&self) -> &Background {
        &self.background
    }

    fn run_job(self: &Arc<Self>, job: Job) -> Result<JobOutcome, StorageError> {
        match job {
            Job::Checkpoint => self.automatic_checkpoint().map(|()| JobOutcome::Done),
            Job::Reclaim => self.reclaim_job(),
        }
    }
}

#[cfg(test)]
mod fuzzy;
