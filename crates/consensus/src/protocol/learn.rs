//! Learning: storing values that are known to be chosen.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::errors::protocol_errors::LearnError;
use crate::index::page::{State, Word};
use crate::memory::entry::Entry;
use crate::memory::value_budget::charge;
use crate::memory::value_pool::new_value;
use crate::options::exceeded_limit;
use crate::outcome::Ticket;
use crate::record;
use crate::state::inner::{ConsensusLog, Inner};

impl ConsensusLog {
    /// Stores a value that is known to be chosen, as committed, whatever was promised or accepted.
    /// Promises nothing. A repeated call with the same value is acknowledged again.
    ///
    /// # Errors
    /// [`LearnError`], for example [`LearnError::AlreadyCommitted`] when the slot is committed with
    /// another value. In each case nothing was stored.
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
    /// # Ok(log.close()?)
    /// # }
    /// ```
    pub fn learn(&self, slot: Slot, ballot: Ballot, value: &[u8]) -> Result<Ticket, LearnError> {
        let (inner, slot) = (&self.inner, slot.0);
        if let Some(limit) = exceeded_limit(&inner.options, value.len()) {
            return Err(LearnError::EntryTooLarge { size: value.len() as u64, limit });
        }
        let guard = crossbeam_epoch::pin();
        let mut evicted = None;
        let ticket = loop {
            match inner.learn_in_memory(slot, ballot, value, evicted.as_ref(), &guard)? {
                Some(ticket) => break ticket,
                None => evicted = inner.entry_of(slot, &guard)?,
            }
        };
        inner.checkpoint_if_due();
        Ok(ticket)
    }
}

impl Inner {
    /// Attempts to store a chosen value. `None` if the slot is committed with a value that is not
    /// in memory, and not in `evicted`.
    fn learn_in_memory(
        self: &Arc<Self>,
        slot: u64,
        ballot: Ballot,
        value: &[u8],
        evicted: Option<&Entry<'_>>,
        guard: &Guard,
    ) -> Result<Option<Ticket>, LearnError> {
        self.load_page(slot, guard);
        let promise_state = self.slot_lock(slot)?;
        self.writable(&promise_state)?;
        if let Some(floor) = self.floor_over(slot) {
            return Err(LearnError::Truncated { floor });
        }
        let limit = self.slot_limit();
        let out_of_range = LearnError::SlotOutOfRange { slot: Slot(slot), limit };
        if slot >= limit.0 {
            return Err(out_of_range);
        }
        let page = self.page_for(slot, guard)?.ok_or(out_of_range)?;
        let indexed = page.slot(slot);
        let resident = indexed.resident().load(guard);
        let state = indexed.word().state();
        if state == State::Accepted && resident.is_none() {
            return Err(self.broken("an uncommitted value is in memory").into());
        }
        if state == State::Committed {
            let marker = resident.as_ref().map_or(0, |resident| resident.marker());
            // A committed value never changes, so one that was read without the lock is it.
            let entry = match (resident, evicted) {
                (Some(resident), _) => Entry::borrowed(resident, true),
                (None, Some(evicted)) => evicted.clone(),
                (None, None) => return Ok(None),
            };
            if entry.value() != value {
                let entry = Box::new(entry.into_committed());
                return Err(LearnError::AlreadyCommitted { entry });
            }
            return Ok(Some(self.commit_ticket_of(marker)?));
        }
        let ticket = self.append(|out| record::chosen(out, slot, ballot, value))?;
        let seq = ticket.seq().0;
        indexed.resident().swap(Some(new_value(slot, ballot, value, seq)), guard);
        indexed.set_word(Word::committed(seq).sized(value.len()));
        page.touch();
        page.count_commit();
        if state == State::Accepted {
            page.open.leave();
            self.budget.release(resident.map_or(0, |resident| charge(resident.len())));
        }
        let pending = self.frontier.lock().committed(seq, slot, charge(value.len()));
        drop(promise_state);
        self.count_durable_if_many(pending, guard);
        Ok(Some(self.commit_ticket(ticket)))
    }
}
