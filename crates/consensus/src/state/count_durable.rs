//! Counting the commits that have become durable.

use std::sync::Arc;

use crossbeam_epoch::Guard;
use esker_disk::planted::{Bug, is_planted};

use crate::base::slot::page_of;
use crate::index::page::State;
use crate::index::page_table::PageLookup;
use crate::outcome::Ticket;
use crate::state::commit_tracker::{CachedValue, CommitTracker};
use crate::state::inner::Inner;
use crate::storage_error::StorageError;

/// The most pending commits before a commit counts the durable ones.
const PENDING_COMMITS_MAX: usize = 64;

impl Inner {
    /// The last slot up to which all are durably decided.
    pub(crate) fn last_decided(&self) -> Option<u64> {
        self.count_durable(&crossbeam_epoch::pin());
        self.frontier.lock().next.checked_sub(1)
    }

    /// As `count_durable`, if many commits are pending, so that their number stays bounded. With
    /// `sync_on_commit` off also if there is a watch.
    pub(crate) fn count_durable_if_many(&self, pending: usize, guard: &Guard) {
        if self.is_count_due(pending) {
            self.count_durable(guard);
        }
    }

    /// Whether a commit counts the durable ones, of which so many are pending.
    pub(crate) fn is_count_due(&self, pending: usize) -> bool {
        let watched = !self.options.sync_on_commit && self.frontier.waiters().is_watched();
        watched || pending >= PENDING_COMMITS_MAX
    }

    /// Counts the commits whose markers are durable (see `visible`), and the durable raises of the
    /// floor. Reads the pages that the frontier comes to, without a lock: the caller holds none.
    pub(crate) fn count_durable(&self, guard: &Guard) {
        // A page that was read stays in memory, so the frontier passes it.
        while let Some(slot) = self.count_in_memory(guard) {
            // After an error the next caller retries.
            if let Err(error) = self.page(slot, guard) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to advance the frontier"
                );
                return;
            }
        }
    }

    /// As [`Inner::count_durable`], for a caller that holds slot locks: the frontier stays at a
    /// page that is not in memory. Returns the first slot there that is not decided.
    pub(crate) fn count_in_memory(&self, guard: &Guard) -> Option<u64> {
        let durable = self.log.durable().0;
        // Of the same moment: a raise counts only with the commits before it.
        let visible = if self.options.sync_on_commit { durable } else { u64::MAX };
        let mut tracker = self.frontier.lock();
        let before = tracker.next;
        let shown = if is_planted(Bug::FloorShownBeforeSync) { u64::MAX } else { durable };
        if tracker.apply_raises(shown) || tracker.lacks_page {
            self.advance(&mut tracker, visible, guard);
        }
        while let Some(CachedValue { slot, marker, bytes }) = tracker.pending.front().copied() {
            if marker > visible {
                break;
            }
            tracker.pending.pop_front();
            tracker.count(slot);
            tracker.cache(slot, marker, bytes);
            if slot == tracker.next {
                self.advance(&mut tracker, visible, guard);
            }
        }
        self.evict(&mut tracker, guard);
        tracker.check_invariants();
        let moved = tracker.next != before;
        debug_assert!(tracker.next >= before, "the frontier moved back");
        let unread = tracker.lacks_page.then_some(tracker.next);
        drop(tracker);
        if moved {
            self.frontier.waiters().wake();
        }
        unread
    }

    /// Moves the frontier over all committed slots up to the first gap, or to a page that is not in
    /// memory.
    pub(crate) fn advance(&self, tracker: &mut CommitTracker, visible: u64, guard: &Guard) {
        tracker.lacks_page = false;
        loop {
            let page = match self.index.find(page_of(tracker.next), guard) {
                PageLookup::Page(page) => page,
                PageLookup::Absent => return,
                PageLookup::Stored(_) => {
                    tracker.lacks_page = true;
                    return;
                }
            };
            for (slot, indexed) in page.from(tracker.next) {
                let counts = indexed.word().state() == State::Committed
                    && indexed
                        .resident()
                        .load(guard)
                        .is_none_or(|resident| resident.marker() <= visible);
                if !counts {
                    return;
                }
                tracker.next = slot + 1;
            }
        }
    }

    /// Evicts the oldest committed values while they exceed `cache_size`. A value that is not
    /// durable stays: it could not be read back.
    fn evict(&self, tracker: &mut CommitTracker, guard: &Guard) {
        if tracker.cached <= self.options.cache_size {
            return;
        }
        let durable = self.log.durable().0;
        while tracker.cached > self.options.cache_size {
            let Some(CachedValue { slot, marker, bytes }) = tracker.cache.front().copied() else {
                debug_assert!(false, "bytes are cached without a value");
                return;
            };
            if marker > durable {
                return;
            }
            tracker.cache.pop_front();
            debug_assert!(bytes <= tracker.cached, "a value is charged more than is cached");
            tracker.cached -= bytes;
            if let PageLookup::Page(page) = self.index.find(page_of(slot), guard) {
                let indexed = page.slot(slot);
                if indexed.word().state() == State::Committed {
                    indexed.put(None, bytes, guard);
                }
            }
        }
    }
}

impl Inner {
    /// Returns the acknowledgement of an earlier record.
    pub(crate) fn ticket_of(self: &Arc<Self>, seq: u64) -> Result<Ticket, StorageError> {
        if seq <= self.log.durable().0 {
            return Ok(Ticket::READY);
        }
        let ticket = self.log.barrier().map_err(|error| self.fail(error))?;
        Ok(Ticket::new(ticket, self.failure_sink()))
    }

    /// Returns the acknowledgement of a commit.
    pub(crate) fn commit_ticket(self: &Arc<Self>, ticket: esker_log::Ticket) -> Ticket {
        if self.options.sync_on_commit {
            Ticket::new(ticket, self.failure_sink())
        } else {
            Ticket::READY
        }
    }

    /// Returns the acknowledgement of a commit by an earlier record.
    pub(crate) fn commit_ticket_of(self: &Arc<Self>, marker: u64) -> Result<Ticket, StorageError> {
        if self.options.sync_on_commit { self.ticket_of(marker) } else { Ok(Ticket::READY) }
    }
}
