//! The floor: raising it, and dropping the slots below.
//!
//! A truncation raises the floor up to the frontier. [`Snapshots::install`] raises both over a gap
//! that a snapshot covers. Either may replace the state of the application in the same record. See
//! `truncate` for what is visible before the record is durable.
//!
//! [`Snapshots::install`]: crate::Snapshots::install

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use esker_disk::planted::{Bug, is_planted};

use crate::base::slot::{SLOTS_PER_PAGE, Slot, SnapshotBounds, first_slot_of, page_of};
use crate::errors::protocol_errors::TruncateError;
use crate::index::page::{Page, State};
use crate::index::page_table::PageLookup;
use crate::memory::value_budget::charge;
use crate::outcome::Ticket;
use crate::record::{self, APP_STATE_LIMIT};
use crate::state::commit_tracker::{AppStateBytes, FloorRaise};
use crate::state::inner::Inner;
use crate::storage_error::{StorageError, refuse_if_forked};

/// The acknowledgement of a raised floor. When it resolves, the floor is durable, and the space
/// below is reclaimed in the background, by whole segments.
///
/// Dropping it does not undo the call: the slots are dropped, and durably once a later record is
/// durable. Reclaiming then waits for the next truncation.
#[derive(Debug)]
#[must_use = "the floor is durable when the ticket has resolved"]
pub struct FloorTicket {
    ticket: Ticket,
    inner: Arc<Inner>,
}

impl FloorTicket {
    /// Blocks until the floor is durable.
    ///
    /// # Errors
    /// [`StorageError`], for example [`StorageError::Log`] when the write or sync failed.
    pub fn blocking_wait(self) -> Result<(), StorageError> {
        refuse_if_forked()?;
        self.ticket.blocking_wait()?;
        self.inner.show_raises();
        Ok(())
    }

    /// As [`FloorTicket::blocking_wait`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`FloorTicket::blocking_wait`], and [`esker_log::Error::Timeout`]; the floor may become
    /// durable later.
    pub fn blocking_wait_timeout(self, timeout: Duration) -> Result<(), StorageError> {
        refuse_if_forked()?;
        self.ticket.blocking_wait_timeout(timeout)?;
        self.inner.show_raises();
        Ok(())
    }
}

impl Future for FloorTicket {
    type Output = Result<(), StorageError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        refuse_if_forked()?;
        std::task::ready!(Pin::new(&mut self.ticket).poll(cx))?;
        self.inner.show_raises();
        Poll::Ready(Ok(()))
    }
}

impl Inner {
    /// Raises the floor to the slot before `slot`, up to which all are decided.
    pub(crate) fn truncate_before(
        self: &Arc<Self>,
        Slot(slot): Slot,
        app_state: Option<&[u8]>,
    ) -> Result<FloorTicket, TruncateError> {
        refuse_if_forked()?;
        self.count_durable(&crossbeam_epoch::pin());
        let next = self.frontier.lock().decided();
        if slot > next {
            return Err(TruncateError::Gap { slot: Slot(next) });
        }
        let ticket = self.raise(slot, slot, app_state)?;
        Ok(FloorTicket { ticket, inner: Arc::clone(self) })
    }

    /// Raises floor and frontier over a gap that a snapshot covers.
    pub(crate) fn install(
        self: &Arc<Self>,
        SnapshotBounds { floor, frontier }: SnapshotBounds,
        app_state: Option<&[u8]>,
    ) -> Result<FloorTicket, TruncateError> {
        if frontier < floor {
            return Err(TruncateError::Gap { slot: frontier.next() });
        }
        let limit = Slot(u64::MAX - 1);
        if frontier >= limit {
            return Err(TruncateError::SlotOutOfRange { slot: frontier, limit });
        }
        let ticket = self.raise(floor.0 + 1, frontier.0 + 1, app_state)?;
        Ok(FloorTicket { ticket, inner: Arc::clone(self) })
    }

    /// Appends the record that raises the first kept slot and the first undecided one, and drops
    /// all slots below the first. The ticket acknowledges the record.
    pub(crate) fn raise(
        self: &Arc<Self>,
        start: u64,
        next: u64,
        app_state: Option<&[u8]>,
    ) -> Result<Ticket, TruncateError> {
        refuse_if_forked()?;
        let size = app_state.map_or(0, <[u8]>::len);
        if size > APP_STATE_LIMIT {
            let (size, limit) = (size as u64, APP_STATE_LIMIT as u64);
            return Err(TruncateError::EntryTooLarge { size, limit });
        }
        self.load_for_raise(start, next);
        let guard = crossbeam_epoch::pin();
        self.count_durable(&guard);
        let locks = self.all_locks()?;
        self.writable(&locks.promise_state())?;
        let start = start.max(self.start());
        let (decided, stored) = {
            let tracker = self.frontier.lock();
            (tracker.decided(), tracker.newest_app_state())
        };
        let next = next.max(decided).max(start);
        let app_state: AppStateBytes = match app_state {
            Some(bytes) if *bytes != *stored => bytes.into(),
            _ => Arc::clone(&stored),
        };
        if start == self.start() && next == decided && Arc::ptr_eq(&app_state, &stored) {
            // The caller that raised it may still be waiting. Commits that are not synced count as
            // decided, and may be any that were accepted since.
            let synced = self.options.sync_on_commit;
            let record = match synced {
                _ if is_planted(Bug::RepeatedRaiseNotAwaited) => 0,
                true => self.records.newest_raise(),
                false => self.log.accepted().0,
            };
            drop(locks);
            return Ok(self.ticket_of(record)?);
        }
        let promise = locks.promise_state().promised();
        let ticket =
            self.append_internal(|out| record::state(out, promise, start, next, &app_state))?;
        let record = ticket.seq().0;
        self.records.set_newest_raise(record);
        self.index.raise_start(start);
        let dropped = self.forget_below(start, &guard);
        self.frontier.lock().raise(FloorRaise { record, start, next, app_state });
        drop(locks);
        drop(guard);
        release(dropped);
        Ok(Ticket::new(ticket, self.failure_sink()))
    }

    /// Reads the pages that a raise looks at, as [`Inner::load_page`].
    fn load_for_raise(&self, start: u64, next: u64) {
        let guard = crossbeam_epoch::pin();
        let start = start.max(self.start());
        let (pending, decided) = {
            let tracker = self.frontier.lock();
            (tracker.pending_slots(), tracker.decided())
        };
        self.load_page(start, &guard);
        self.first_counted(start, &pending, &guard);
        // The frontier moves on from here when the raise is durable.
        let mut from = next.max(decided).max(start);
        while let Ok(Some(page)) = self.page(from, &guard)
            && page.committed() == SLOTS_PER_PAGE as u64
        {
            from = first_slot_of(page.number + 1);
        }
    }

    /// Shows the durable raises to readers, and lets their space be reclaimed.
    fn show_raises(self: &Arc<Self>) {
        self.count_durable(&crossbeam_epoch::pin());
        self.reclaim_soon();
    }

    /// Drops every slot below the first kept one. Reads no page that is wholly below it: the floor
    /// is durable, and corruption there must not stop it. Returns the dropped pages that were in
    /// memory. The caller holds all slot locks.
    pub(crate) fn forget_below(
        &self,
        start: u64,
        guard: &crossbeam_epoch::Guard,
    ) -> Vec<Arc<Page>> {
        let first = page_of(start);
        // A page with accepted slots is always in memory.
        for number in self.index.open.list().into_iter().take_while(|number| *number <= first) {
            if let PageLookup::Page(page) = self.index.find(number, guard) {
                self.release_room(&page, start, guard);
            }
        }
        let mut gone = 0;
        if !start.is_multiple_of(SLOTS_PER_PAGE as u64) {
            gone += self.empty_below(start, guard);
        }
        let (dropped, unread) = self.index.drop_below(first, guard);
        gone += dropped.iter().map(|page| page.committed()).sum::<u64>() + unread;
        let mut tracker = self.frontier.lock();
        let pending = tracker.pending_slots();
        let lowest = self.first_counted(start, &pending, guard);
        tracker.forget_below(start, gone, lowest);
        drop(tracker);
        dropped
    }

    /// Releases the budget of accepted values in a page, below a slot.
    fn release_room(&self, page: &Page, start: u64, guard: &crossbeam_epoch::Guard) {
        for (_, indexed) in page.used_from(0).take_while(|(slot, _)| *slot < start) {
            if indexed.word().state() == State::Accepted {
                // During recovery the values are not loaded yet, and take no room.
                let resident = indexed.resident().load(guard);
                self.budget.release(resident.map_or(0, |resident| charge(resident.len())));
            }
        }
    }

    /// Empties the slots below `start` in the page of `start`. Returns how many were committed.
    fn empty_below(&self, start: u64, guard: &crossbeam_epoch::Guard) -> u64 {
        let number = page_of(start);
        match self.page(start, guard) {
            Ok(Some(page)) => {
                let before = page.committed();
                debug_assert!(page.number == number, "another page is emptied");
                for (_, indexed) in page.used_from(0).take_while(|(slot, _)| *slot < start) {
                    page.clear(indexed, guard);
                }
                before - page.committed()
            }
            Ok(None) => 0,
            // Its slots are lost either way; this count is the best estimate available.
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to read the index page at the new floor"
                );
                let below = start % SLOTS_PER_PAGE as u64;
                let gone = self.index.stored_commits(number, guard).min(below);
                self.index.lose_commits(number, gone, guard);
                gone
            }
        }
    }

    /// The first committed slot at or above `from` that is not among those whose commits are
    /// pending; a lower bound if its page cannot be read.
    fn first_counted(
        &self,
        from: u64,
        pending: &BTreeSet<u64>,
        guard: &crossbeam_epoch::Guard,
    ) -> Option<u64> {
        let mut number = self.index.next_page(page_of(from), guard);
        while let Some(current) = number {
            let from = from.max(first_slot_of(current));
            match self.page(from, guard) {
                Ok(Some(page)) if page.committed() > 0 => {
                    let first = page.used_from(from).find(|(slot, indexed)| {
                        indexed.word().state() == State::Committed && !pending.contains(slot)
                    });
                    if let Some((slot, _)) = first {
                        return Some(slot);
                    }
                }
                Err(_) if self.index.stored_commits(current, guard) > 0 => {
                    return Some(from);
                }
                Ok(_) | Err(_) => {}
            }
            number = self.index.next_page(current + 1, guard);
        }
        None
    }
}

/// The most polls of `release` for the old table to be freed, so that this thread frees the pages.
const TABLE_FREE_POLLS: u32 = 100;

/// Frees pages that left the index, one by one.
fn release(dropped: Vec<Arc<Page>>) {
    for page in dropped {
        for _ in 0..TABLE_FREE_POLLS {
            if Arc::strong_count(&page) == 1 {
                break;
            }
            crossbeam_epoch::pin().flush();
        }
    }
}
