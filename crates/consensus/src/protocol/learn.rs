//! Learning: storing values that are known to be chosen.

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::errors::protocol_errors::LearnError;
use crate::index::page::{State, Word};
use crate::memory::value_budget::charge;
use crate::memory::value_pool::new_value;
use crate::options::exceeded_limit;
use crate::outcome::Ticket;
use crate::record;
use crate::state::inner::ConsensusLog;

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
        let promise_state = inner.slot_lock(slot)?;
        inner.writable(&promise_state)?;
        if let Some(floor) = inner.floor_over(slot) {
            return Err(LearnError::Truncated { floor });
        }
        let limit = inner.slot_limit();
        let out_of_range = LearnError::SlotOutOfRange { slot: Slot(slot), limit };
        if slot >= limit.0 {
            return Err(out_of_range);
        }
        let page = inner.page_for(slot, &guard)?.ok_or(out_of_range)?;
        let indexed = page.slot(slot);
        let resident = indexed.resident().load(&guard);
        let state = indexed.word().state();
        if state == State::Accepted && resident.is_none() {
            return Err(inner.broken("an uncommitted value is in memory").into());
        }
        if state == State::Committed {
            let entry = inner.locked_entry(slot, indexed, &guard)?;
            if entry.value() != value {
                let entry = Box::new(entry.into_committed());
                return Err(LearnError::AlreadyCommitted { entry });
            }
            let marker = resident.map_or(0, |resident| resident.marker());
            return Ok(inner.commit_ticket_of(marker)?);
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
        let pending = inner.frontier.lock().committed(seq, slot, charge(value.len()));
        drop(promise_state);
        inner.count_durable_if_many(pending, &guard);
        inner.checkpoint_if_due();
        Ok(inner.commit_ticket(ticket))
    }
}
