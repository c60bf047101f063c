//! Promises and accepts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use esker_consensus::{
    AcceptBatchError, AcceptError, Ballot, Error, Mode, PromiseError, ReadError, Slot, Ticket,
};

use crate::consensus::slot_model::{SlotModel, Verdict};
use crate::consensus::{Bid, Life, LifeResult, SimEnv, broken, ensure};

impl SimEnv {
    pub(super) fn promise(&mut self, life: &Life, ballot: Ballot, wait: bool) -> LifeResult {
        let stale = ballot < self.model.promise;
        match life.log.promise(ballot, Slot(self.model.start())) {
            Err(PromiseError::StaleBallot { promised }) if stale => {
                ensure!(promised == self.model.promise, "{promised} is said to be promised");
                Ok(())
            }
            Err(error) => {
                // The record may have been written before the power went.
                self.model.promise = self.model.promise.max(ballot);
                self.stop(&error, "promise")
            }
            Ok(_) if stale => broken!("a stale promise was given"),
            Ok(ticket) => {
                self.model.promise = ballot;
                self.model.promise_recorded = ballot;
                if !wait {
                    return Ok(());
                }
                let promised = match ticket.blocking_wait() {
                    Ok(promised) => promised,
                    Err(error) => return self.stop(&error, "a promise's ticket"),
                };
                self.model.durable(&self.setup);
                let mut reported = BTreeMap::new();
                let visited = promised.for_each(|entry| {
                    let committed = entry.is_committed();
                    reported.insert(
                        entry.slot().0,
                        (entry.ballot(), entry.value().to_vec(), committed),
                    );
                    ControlFlow::Continue(())
                });
                if let Err(error) = visited {
                    return self.stop(&error, "a promise's answer");
                }
                for (n, slot) in self.model.kept() {
                    let reported = reported.get(n);
                    let same = match (&slot.committed, &slot.accepted, reported) {
                        (Some(value), _, Some((_, reported, true))) => value == reported,
                        (None, Some((ballot, value)), Some((b, v, false))) => {
                            (ballot, value) == (b, v)
                        }
                        (None, None, None) => true,
                        _ => false,
                    };
                    ensure!(same, "the promise reports {reported:?} of slot {n}");
                }
                Ok(())
            }
        }
    }

    pub(super) fn accept(
        &mut self,
        life: &Life,
        n: u64,
        ballot: Ballot,
        value: Vec<u8>,
        wait: bool,
    ) -> LifeResult {
        let reported = life.log.accept(Slot(n), ballot, &value);
        self.judged(n, ballot, &value, &reported)?;
        let Ok(ticket) = reported else { return Ok(()) };
        self.model.accepted(n, ballot, value, self.setup.mode);
        self.acknowledged(ticket, wait)
    }

    /// The values up to the first that is refused are accepted.
    pub(super) fn accept_batch(
        &mut self,
        life: &Life,
        slots: std::ops::Range<u64>,
        bid: Bid,
        len: usize,
        wait: bool,
    ) -> LifeResult {
        let ballot = self.ballot(bid);
        let values: Vec<_> = slots.map(|n| (n, self.value(len))).collect();
        let pairs: Vec<_> = values.iter().map(|(n, value)| (Slot(*n), value.as_slice())).collect();
        let reported = life.log.accept_batch(ballot, &pairs);
        let (partly, reported) = match reported {
            Err(AcceptBatchError::Stopped { accepted, ticket, source }) => {
                (Some((accepted, ticket)), Err(*source))
            }
            Err(AcceptBatchError::Refused(error)) => (None, Err(error)),
            Err(AcceptBatchError::Storage(error)) => (None, Err(AcceptError::Storage(error))),
            Ok(ticket) => (None, Ok(ticket)),
        };
        for (before, (n, value)) in values.into_iter().enumerate() {
            if self.model.judge(n, ballot, &value, self.setup.room()) != Verdict::Stored {
                let accepted = partly.as_ref().map_or(0, |(accepted, _)| *accepted);
                // An error of a dead disk may have come first.
                let dead = !self.disk.is_on();
                ensure!(
                    dead || accepted == before,
                    "{accepted} of {before} are said to be accepted"
                );
                self.judged(n, ballot, &value, &reported)?;
                return match partly {
                    Some((_, ticket)) => self.acknowledged(ticket, wait),
                    None => Ok(()),
                };
            }
            self.model.accepted(n, ballot, value, self.setup.mode);
        }
        match reported {
            Ok(ticket) => self.acknowledged(ticket, wait),
            Err(error) => self.stop(&error, "accept_batch"),
        }
    }

    /// Repeats an accept that is stored: it is acknowledged again, and changes nothing.
    pub(super) fn accept_again(&mut self, life: &Life, n: u64, bid: Bid) -> LifeResult {
        let Some(slot) = self.model.slots.get(&n) else { return Ok(()) };
        let Some((accepted, value)) = slot.accepted.clone() else { return Ok(()) };
        let ballot = if slot.committed.is_some() { self.ballot(bid) } else { accepted };
        let reported = life.log.accept(Slot(n), ballot, &value);
        self.judged(n, ballot, &value, &reported)?;
        match reported.map(Ticket::blocking_wait) {
            Ok(Err(error)) => self.stop(&error, "an accept's ticket, once more"),
            Ok(Ok(())) if self.setup.mode == Mode::Durable => {
                let slot = self.model.slots.get_mut(&n).unwrap();
                slot.acknowledged = slot.acknowledged.max(Some(accepted));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The answer to a promise is whole, or says that slots of it were truncated meanwhile.
    pub(super) fn promise_interleaved(&mut self, life: &Life, bid: Bid, back: u64) -> LifeResult {
        let ballot = self.ballot(bid);
        if ballot < self.model.promise {
            return Ok(());
        }
        // A few decided slots, so that there is something to truncate.
        let start = self.model.start();
        for n in start..start + 4 {
            let value = self.value(8);
            self.learn(life, n, ballot, value, true)?;
        }
        self.promise(life, ballot, true)?;
        let promised = match life.log.promise(ballot, Slot(self.model.start())) {
            Ok(ticket) => ticket.blocking_wait().map_err(Error::from),
            Err(error) => Err(error.into()),
        };
        let promised = match promised {
            Ok(promised) => promised,
            Err(error) => return self.stop(&error, "a promise"),
        };
        let has_entry = |slot: &SlotModel| slot.accepted.is_some() || slot.committed.is_some();
        let slots = self.model.kept();
        let before: Vec<_> = slots.filter(|(_, slot)| has_entry(slot)).map(|(n, _)| *n).collect();
        let mut truncated = None;
        let mut seen = Vec::new();
        let visited = promised.for_each(|entry| {
            seen.push(entry.slot().0);
            if truncated.is_none() {
                truncated = Some(self.truncate_before(life, back, true));
            }
            ControlFlow::Continue(())
        });
        truncated.unwrap_or(Ok(()))?;
        match visited {
            Ok(_) => {
                ensure!(seen == before, "the promise reports {seen:?} of {before:?}");
                Ok(())
            }
            Err(ReadError::Truncated { .. }) => {
                let unseen = before.iter().find(|n| !seen.contains(n));
                let start = self.model.start();
                ensure!(
                    unseen.is_some_and(|n| *n < start),
                    "the answer was refused, and {unseen:?} is its first unseen slot, from {start} on"
                );
                Ok(())
            }
            Err(error) => self.stop(&error, "a promise's answer"),
        }
    }
}
