//! Learning: storing values that are known to be chosen.

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::index::page::{State, Word};
use crate::memory::value_budget::charge;
use crate::memory::value_pool::new_value;
use crate::options::fits;
use crate::outcome::{Result, Ticket};
use crate::protocol::accept::refused;
use crate::record;
use crate::state::inner::ConsensusLog;

impl ConsensusLog {
    /// Stores a value that is known to be chosen, as committed, whatever was promised or accepted.
    /// Promises nothing. A repeated call with the same value is acknowledged again.
    ///
    /// # Errors
    /// [`AlreadyCommitted`](crate::Error::AlreadyCommitted) when the slot is committed with another
    /// value; [`Truncated`](crate::Error::Truncated),
    /// [`EntryTooLarge`](crate::Error::EntryTooLarge),
    /// [`SlotOutOfRange`](crate::Error::SlotOutOfRange), [`ReadOnly`](crate::Error::ReadOnly),
    /// [`Closed`](crate::Error::Closed), [`Log`](crate::Error::Log).
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
        if state == State::Accepted && resident.is_none() {
            return Err(inner.broken("an uncommitted value is in memory"));
        }
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
        let pending = inner.frontier.lock().committed(seq, slot, charge(value.len()));
        drop(promise_state);
        inner.count_durable_if_many(pending, &guard);
        inner.checkpoint_if_due();
        Ok(inner.commit_ticket(ticket))
    }
}
