//! Catching up: storing chosen values, and moving over gaps that a snapshot covers.

use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};

use crate::base::ballot::Ballot;
use crate::base::slot::{SLOTS, Slot, SnapshotBounds, first_of, number_of};
use crate::index::page::{Page, State, Word};
use crate::index::page_table::Found;
use crate::memory::value_budget::charge;
use crate::memory::value_pool::new_value;
use crate::options::fits;
use crate::outcome::Ticket;
use crate::outcome::{Error, Result, refuse_if_forked};
use crate::protocol::accept::refused;
use crate::record::{self, APP_STATE_LIMIT};
use crate::state::commit_tracker::{AppState, Raise};
use crate::state::inner::ConsensusLog;

impl ConsensusLog {
    /// Stores a value that is known to be chosen, as committed, whatever was promised or accepted.
    /// Promises nothing. A repeated call with the same value is acknowledged again.
    ///
    /// # Errors
    /// [`Error::AlreadyCommitted`] when the slot is committed with another value;
    /// [`Error::Truncated`], [`Error::EntryTooLarge`], [`Error::SlotOutOfRange`],
    /// [`Error::ReadOnly`], [`Error::Closed`], [`Error::Log`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// log.learn(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// assert_eq!((log.frontier(), log.promised()), (Some(Slot(0)), None));
    /// # log.close()
    /// # }
    /// ```
    pub fn learn(&self, slot: Slot, ballot: Ballot, value: &[u8]) -> Result<Ticket> {
        let (inner, slot) = (&self.inner, slot.0);
        fits(&inner.options, value.len())?;
        let guard = crossbeam_epoch::pin();
        let promise_state = inner.slot_lock(slot)?;
        inner.writable(&promise_state)?;
        inner.in_range(slot)?;
        let page = inner.page_for(slot, &guard)?;
        let indexed = page.slot(slot);
        let resident = indexed.resident().load(&guard);
        let state = indexed.word().state();
        if state == State::Committed {
            let entry = inner.entry_at(slot, indexed, &guard)?;
            if entry.value() != value {
                return Err(refused(entry, true, ballot));
            }
            let marker = resident.map_or(0, |resident| resident.marker());
            return inner.commit_ticket_of(marker);
        }
        let ticket = inner.append(|out| record::chosen(out, slot, ballot, value))?;
        let seq = ticket.seq().0;
        indexed.resident().swap(Some(new_value(slot, ballot, value, seq)), &guard);
        indexed.set_word(Word::committed(seq).sized(value.len()));
        page.touch();
        page.count_commit();
        if state == State::Accepted {
            page.open.leave();
            inner.budget.release(resident.map_or(0, |resident| charge(resident.len())));
        }
        let pending = inner.tracker.lock().committed(seq, slot, charge(value.len()));
        drop(promise_state);
        inner.count_durable_if_many(pending, &guard);
        inner.checkpoint_if_due();
        Ok(inner.commit_ticket(ticket))
    }

    /// Moves floor and frontier forward over a gap, under a snapshot that is verified and durable.
    /// Neither ever moves back. Blocks until both are durable.
    ///
    /// # Durability
    /// Both are durable when the call returns.
    ///
    /// # Errors
    /// [`Error::Gap`] when the frontier is below the floor; [`Error::SlotOutOfRange`],
    /// [`Error::ReadOnly`], [`Error::Closed`], [`Error::Log`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{ConsensusLog, Error};
    /// use esker_consensus::{Slot, SnapshotBounds};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// // The snapshot has slots 0 to 99, so this log needs none of them.
    /// log.install(SnapshotBounds { floor: Slot(99), frontier: Slot(99) })?;
    /// assert_eq!((log.floor(), log.frontier()), (Some(Slot(99)), Some(Slot(99))));
    /// # log.close()
    /// # }
    /// ```
    pub fn install(&self, bounds: SnapshotBounds) -> Result<()> {
        self.raise_over(bounds, None)?.blocking_wait()?;
        self.inner.raised();
        Ok(())
    }

    /// As [`ConsensusLog::install`], waiting without blocking.
    ///
    /// # Cancel safety
    /// The first poll appends the record. Dropping the future after that does not undo it: the
    /// floor is raised, and is durable once a later record is. Reclaiming then waits for the next
    /// truncation.
    ///
    /// # Errors
    /// As [`ConsensusLog::install`].
    pub async fn install_async(&self, bounds: SnapshotBounds) -> Result<()> {
        self.raise_over(bounds, None)?.await?;
        self.inner.raised();
        Ok(())
    }

    /// As [`ConsensusLog::install`], and replaces the state of the application with it, in one
    /// record: see [`ConsensusLog::set_app_state`].
    ///
    /// # Errors
    /// As [`ConsensusLog::install`] and [`ConsensusLog::set_app_state`].
    pub fn install_with(&self, bounds: SnapshotBounds, app_state: &[u8]) -> Result<()> {
        self.raise_over(bounds, Some(app_state))?.blocking_wait()?;
        self.inner.raised();
        Ok(())
    }

    /// As [`ConsensusLog::install_with`], waiting without blocking.
    ///
    /// # Cancel safety
    /// As [`ConsensusLog::install_async`].
    ///
    /// # Errors
    /// As [`ConsensusLog::install_with`].
    pub async fn install_with_async(&self, bounds: SnapshotBounds, app_state: &[u8]) -> Result<()> {
        self.raise_over(bounds, Some(app_state))?.await?;
        self.inner.raised();
        Ok(())
    }

    /// Replaces the state of the application: some bytes of its own that the log keeps beside
    /// promise and floor, for example the id of the last entry that Raft purged. It is durable
    /// when the ticket has resolved. It survives every truncation, and costs one record.
    ///
    /// # Errors
    /// [`Error::EntryTooLarge`] above [`APP_STATE_LIMIT`] bytes; [`Error::ReadOnly`],
    /// [`Error::Closed`], [`Error::Log`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.learn(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// log.set_app_state(b"nothing purged")?.blocking_wait()?;
    /// log.truncate_before_with(Slot(1), b"purged slot 0")?;
    /// assert_eq!(*log.app_state(), *b"purged slot 0");
    /// # log.close()
    /// # }
    /// ```
    pub fn set_app_state(&self, app_state: &[u8]) -> Result<Ticket> {
        self.inner.raise(0, 0, Some(app_state))
    }

    fn raise_over(
        &self,
        SnapshotBounds { floor, frontier }: SnapshotBounds,
        app_state: Option<&[u8]>,
    ) -> Result<Ticket> {
        if frontier < floor {
            return Err(Error::Gap { slot: frontier.next() });
        }
        let limit = Slot(u64::MAX - 1);
        if frontier >= limit {
            return Err(Error::SlotOutOfRange { slot: frontier, limit });
        }
        self.inner.raise(floor.0 + 1, frontier.0 + 1, app_state)
    }
}

impl crate::state::inner::Inner {
    /// Appends the record that raises the first kept slot and the first undecided one, and drops
    /// all slots below the first. The ticket acknowledges the record. See `truncate` for what is
    /// visible before it is durable.
    pub(crate) fn raise(
        self: &Arc<Self>,
        start: u64,
        next: u64,
        app_state: Option<&[u8]>,
    ) -> Result<Ticket> {
        refuse_if_forked()?;
        let size = app_state.map_or(0, <[u8]>::len);
        if size > APP_STATE_LIMIT {
            let (size, limit) = (size as u64, APP_STATE_LIMIT as u64);
            return Err(Error::EntryTooLarge { size, limit });
        }
        // Read the page before taking the locks. An error does not matter here.
        if !start.is_multiple_of(SLOTS as u64) {
            drop(self.page(start, &crossbeam_epoch::pin()));
        }
        let guard = crossbeam_epoch::pin();
        self.count_durable(&guard);
        let locks = self.all_locks()?;
        self.writable(&locks.promise_state())?;
        let start = start.max(self.start());
        let (decided, stored) = {
            let tracker = self.tracker.lock();
            (tracker.decided(), tracker.newest_app_state())
        };
        let next = next.max(decided).max(start);
        let app_state: AppState = match app_state {
            Some(bytes) if *bytes != *stored => bytes.into(),
            _ => Arc::clone(&stored),
        };
        if start == self.start() && next == decided && Arc::ptr_eq(&app_state, &stored) {
            // The caller that raised it may still be waiting. Commits that are not synced count as
            // decided, and may be any that were accepted since.
            let synced = self.options.sync_on_commit;
            let record = if synced { self.raised_at.load(Relaxed) } else { self.log.accepted().0 };
            drop(locks);
            return self.ticket_of(record);
        }
        let promise = locks.promise_state().promised();
        let ticket =
            self.append_internal(|out| record::state(out, promise, start, next, &app_state))?;
        let record = ticket.seq().0;
        self.raised_at.store(record, Relaxed);
        self.start.store(start, Release);
        let dropped = self.forget_below(start, &guard);
        self.tracker.lock().raise(Raise { record, start, next, app_state });
        drop(locks);
        drop(guard);
        release(dropped);
        Ok(Ticket::new(ticket, self.failing()))
    }

    /// A raise is durable: shows it to readers, and lets its space be reclaimed.
    pub(crate) fn raised(self: &Arc<Self>) {
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
        let first = number_of(start);
        // A page with accepted slots is always in memory.
        for number in self.index.open.list().into_iter().take_while(|number| *number <= first) {
            if let Found::Page(page) = self.index.find(number, guard) {
                self.release_room(&page, start, guard);
            }
        }
        let mut gone = 0;
        if !start.is_multiple_of(SLOTS as u64) {
            gone += self.empty_below(start, guard);
        }
        let (dropped, unread) = self.index.drop_below(first, guard);
        gone += dropped.iter().map(|page| page.committed()).sum::<u64>() + unread;
        let lowest = self.first_committed(start, guard);
        self.tracker.lock().forget_below(start, gone, lowest);
        dropped
    }

    /// Releases the budget of accepted values in a page, below a slot.
    fn release_room(&self, page: &Page, start: u64, guard: &crossbeam_epoch::Guard) {
        for (_, indexed) in page.used_from(0).take_while(|(slot, _)| *slot < start) {
            if indexed.word().state() == State::Accepted {
                let resident = indexed.resident().load(guard);
                self.budget.release(resident.map_or(0, |resident| charge(resident.len())));
            }
        }
    }

    /// Empties the slots below `start` in the page of `start`. Returns how many were committed.
    fn empty_below(&self, start: u64, guard: &crossbeam_epoch::Guard) -> u64 {
        let number = number_of(start);
        match self.page(start, guard) {
            Ok(Some(page)) => {
                let before = page.committed();
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
                let below = start % SLOTS as u64;
                let gone = self.index.stored_commits(number, guard).min(below);
                self.index.lose_commits(number, gone, guard);
                gone
            }
        }
    }

    /// The first committed slot at or above `from`; a lower bound if its page cannot be read.
    fn first_committed(&self, from: u64, guard: &crossbeam_epoch::Guard) -> Option<u64> {
        let mut number = self.index.next_page(number_of(from), guard);
        while let Some(current) = number {
            let from = from.max(first_of(current));
            match self.page(from, guard) {
                Ok(Some(page)) if page.committed() > 0 => {
                    let mut slots = page.used_from(from);
                    let first =
                        slots.find(|(_, indexed)| indexed.word().state() == State::Committed);
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

/// How often `release` polls for the old table to be freed, so that this thread frees the pages.
const LOOKS: u32 = 100;

/// Frees pages that left the index, one by one.
fn release(dropped: Vec<Arc<Page>>) {
    for page in dropped {
        for _ in 0..LOOKS {
            if Arc::strong_count(&page) == 1 {
                break;
            }
            crossbeam_epoch::pin().flush();
        }
    }
}
