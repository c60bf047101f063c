//! Catching up: values that are known to be chosen, and gaps that a snapshot covers.

use std::sync::atomic::Ordering::Release;

use crate::accept::refused;
use crate::ballot::Ballot;
use crate::error::{Error, Result};
use crate::held::hold;
use crate::log::ConsensusLog;
use crate::options::fits;
use crate::page::{State, Word, number_of};
use crate::record;
use crate::region::charge;
use crate::ticket::Ticket;

impl ConsensusLog {
    /// Stores a value that is known to be chosen, as committed, whatever was promised or accepted.
    /// Promises nothing. Storing it again is acknowledged again.
    ///
    /// # Errors
    /// [`Error::AlreadyCommitted`] when the slot is committed with another value;
    /// [`Error::Truncated`], [`Error::EntryTooLarge`], [`Error::SlotOutOfRange`],
    /// [`Error::ReadOnly`], [`Error::Closed`], [`Error::Log`].
    pub fn learn(&self, slot: u64, ballot: Ballot, value: &[u8]) -> Result<Ticket> {
        let inner = &self.inner;
        fits(&inner.options, value.len())?;
        let guard = crossbeam_epoch::pin();
        let terms = inner.gate.of_slot(slot);
        inner.writable(&terms)?;
        inner.in_range(slot)?;
        let page = inner.page_for(slot, &guard)?;
        let place = page.slot(slot);
        let held = place.held().load(&guard);
        let state = place.word().state();
        if state == State::Committed {
            let entry = inner.entry_at(slot, place, &guard)?;
            if entry.value() != value {
                return Err(refused(entry, true, ballot));
            }
            let marker = held.map_or(0, |held| held.marker());
            return inner.commit_ticket_of(marker);
        }
        let ticket = inner.append(|out| record::chosen(out, slot, ballot, value))?;
        let seq = ticket.seq().0;
        place.held().swap(Some(hold(slot, ballot, value, seq)), &guard);
        place.set_word(Word::committed(seq));
        page.touch();
        if state == State::Accepted {
            page.open.leave();
            inner.region.release(held.map_or(0, |held| charge(held.len())));
        }
        let pending = inner.settled.lock().committed(seq, slot, charge(value.len()));
        drop(terms);
        inner.settle_if_many(pending, &guard);
        inner.checkpoint_if_due();
        Ok(inner.commit_ticket(ticket))
    }

    /// Moves floor and frontier forward over a gap, under a snapshot that was verified and is
    /// durable: slots up to `floor` are gone, and slots up to `frontier` are decided, whether their
    /// values are here or not. Neither ever moves back. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::Gap`] when `frontier` is below `floor`; [`Error::SlotOutOfRange`],
    /// [`Error::ReadOnly`], [`Error::Closed`], [`Error::Log`].
    pub fn install(&self, floor: u64, frontier: u64) -> Result<()> {
        if frontier < floor {
            return Err(Error::Gap { slot: frontier + 1 });
        }
        if frontier >= u64::MAX - 1 {
            return Err(Error::SlotOutOfRange { slot: frontier, limit: u64::MAX - 1 });
        }
        self.inner.raise(floor + 1, frontier + 1)?;
        self.inner.free_space()
    }
}

impl crate::log::Inner {
    /// Raises the first slot kept, and the first not decided, durably, and forgets what is below.
    pub(crate) fn raise(&self, start: u64, next: u64) -> Result<()> {
        let guard = crossbeam_epoch::pin();
        let gate = self.gate.alone();
        self.writable(&gate.terms())?;
        self.settle(&guard);
        let start = start.max(self.start());
        let next = next.max(self.settled.lock().next()).max(start);
        if start == self.start() && next == self.settled.lock().next() {
            return Ok(());
        }
        let promise = gate.terms().promise;
        let ticket = self.append(|out| record::state(out, promise, start, next))?;
        // Nobody sees the new floor before it is durable. Whatever was appended before is, then.
        ticket.wait().map_err(|error| self.fail(error))?;
        self.settle(&guard);
        self.start.store(start, Release);
        self.forget_below(start, &guard)?;
        {
            let mut settled = self.settled.lock();
            settled.raise(next);
            self.advance(&mut settled, self.visible(), &guard);
        }
        drop(gate);
        self.waiting.wake();
        Ok(())
    }

    /// Empties every slot below the first one kept. The caller holds the gate alone.
    pub(crate) fn forget_below(&self, start: u64, guard: &crossbeam_epoch::Guard) -> Result<()> {
        let mut gone = 0;
        let mut number = self.index.next_page(0, guard);
        while let Some(current) = number.filter(|number| *number <= number_of(start)) {
            if let Some(page) = self.page(current, guard)? {
                for (_, place) in page.from(0).take_while(|(slot, _)| *slot < start) {
                    match place.word().state() {
                        State::Empty => continue,
                        State::Accepted => {
                            page.open.leave();
                            let held = place.held().load(guard);
                            self.region.release(held.map_or(0, |held| charge(held.len())));
                        }
                        State::Committed => gone += 1,
                    }
                    place.clear(guard);
                    page.touch();
                }
            }
            number = current.checked_add(1).and_then(|next| self.index.next_page(next, guard));
        }
        self.index.drop_below(number_of(start), guard);
        let lowest = self.first_committed(start, guard)?;
        self.settled.lock().forget_below(start, gone, lowest);
        Ok(())
    }

    /// The first committed slot at or above one.
    fn first_committed(&self, from: u64, guard: &crossbeam_epoch::Guard) -> Result<Option<u64>> {
        let mut number = self.index.next_page(number_of(from), guard);
        while let Some(current) = number {
            if let Some(page) = self.page(current, guard)? {
                let mut slots = page.from(from);
                if let Some((slot, _)) =
                    slots.find(|(_, place)| place.word().state() == State::Committed)
                {
                    return Ok(Some(slot));
                }
            }
            number = self.index.next_page(current + 1, guard);
        }
        Ok(None)
    }
}
