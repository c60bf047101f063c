//! Raises of the floor and cuts of the suffix, and which of them a crash may take back.
//!
//! # The crash argument
//!
//! A raise (`truncate_before`, `install`) and a cut (`truncate_from`) each append one record under
//! all slot locks, and change the slots in memory under the same locks. The log makes records
//! durable in their order, and recovery finds a prefix of them that has each durable one. While a
//! ticket has not resolved, or after it was dropped, its record is *pending*:
//!
//! - *Calls see the change at once.* The slots are gone, and later records follow the pending one.
//! - *A crash finds the record or not.* Without it the slots are back, with all that was
//!   acknowledged of them. So the model keeps them until the record is durable.
//! - *The floor never falls below a durable one*, whose record is in each prefix. It is never above
//!   what was asked for: no record says so. The same holds for the frontier, the promise and the
//!   application's state of the record, which come and go with its floor.
//! - *A pending record becomes durable* with its own ticket, with the ticket of any later record,
//!   and with that of a call that finds nothing left to change. What the log shows without a
//!   ticket (`floor`, `app_state`) is durable, too.
//! - *The order holds.* A raise is found only with all raises and cuts before it, and so is a cut.
//!   A cut is found for all its slots or for none.
//! - *Two crashes in a row* are no different. Before an opening returns, all that it found is
//!   durable, and all that it did not find is gone: no later crash finds another outcome. An
//!   opening that power ended has decided nothing, and the same outcomes remain possible.

use std::collections::btree_map::Range;

use super::slot_model::{Cut, Model, Raise, SlotModel};

impl Model {
    pub fn newest_raise(&self) -> Raise {
        self.raises.last().copied().unwrap_or_default()
    }

    /// The first slot kept, as calls see it.
    pub fn start(&self) -> u64 {
        self.newest_raise().start
    }

    /// The first slot that may be undecided, as calls see it.
    pub fn next(&self) -> u64 {
        self.decided.max(self.newest_raise().next)
    }

    /// The slots that calls see.
    pub fn kept(&self) -> Range<'_, u64, SlotModel> {
        self.slots.range(self.start()..)
    }

    /// The state that the application stores next.
    pub fn next_app_state(&self) -> u64 {
        self.newest_raise().app_state + 1
    }

    /// The floor is about to be raised. Returns whether that takes a record.
    pub fn raising(&mut self, start: u64, next: u64, app_state: Option<u64>) -> bool {
        let newest = self.newest_raise();
        let raise = Raise {
            start: newest.start.max(start),
            next: newest.next.max(next),
            app_state: app_state.unwrap_or(newest.app_state),
            promise: self.promise,
        };
        let moves = (raise.start, raise.app_state) != (newest.start, newest.app_state);
        if moves {
            self.raises.push(raise);
        }
        moves
    }

    /// The record of a raise is durable, and so is each raise and cut before it.
    pub fn raise_durable(&mut self, index: usize) {
        let raise = self.raises[index];
        self.raised = index;
        self.slots = self.slots.split_off(&raise.start);
        self.decided = self.decided.max(raise.next);
        self.promise_acknowledged = self.promise_acknowledged.max(raise.promise);
        self.cuts_durable(|cut| cut.raise < index);
    }

    /// Drops the accepts from a slot on. Returns whether there were any: only then there is a
    /// record, and it is pending.
    pub fn cut(&mut self, from: u64) -> bool {
        let mut dropped = false;
        let uncommitted = self.slots.range_mut(from..).map(|(_, slot)| slot);
        for slot in uncommitted.filter(|slot| slot.committed.is_none()) {
            dropped |= slot.accepted.take().is_some();
            let acknowledged = slot.acknowledged.take();
            slot.acknowledged_before_cut = slot.acknowledged_before_cut.max(acknowledged);
        }
        if dropped {
            self.cuts_made += 1;
            let (number, raise) = (self.cuts_made, self.raises.len() - 1);
            self.cuts.push(Cut { number, from, raise });
        }
        dropped
    }

    /// Whether a pending cut dropped this slot.
    pub fn may_be_cut(&self, n: u64) -> bool {
        self.cuts.iter().any(|cut| cut.from <= n)
    }

    /// The records of some pending cuts are durable: nothing that they dropped comes back.
    pub fn cuts_durable(&mut self, are: impl Fn(&Cut) -> bool) {
        for cut in self.cuts.extract_if(.., |cut| are(cut)) {
            for (_, slot) in self.slots.range_mut(cut.from..) {
                slot.attempted.retain(|attempt| attempt.cuts >= cut.number);
                slot.acknowledged_before_cut = None;
            }
        }
    }
}
