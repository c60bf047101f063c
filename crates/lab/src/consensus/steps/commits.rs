//! Commits, and values that are learned.

use esker_consensus::{Ballot, CommitError, LearnError, Slot, Ticket};

use crate::consensus::{Bid, Life, LifeResult, SimEnv, broken, ensure};

impl SimEnv {
    pub(super) fn commit(&mut self, life: &Life, n: u64, right: bool, wait: bool) -> LifeResult {
        let slot = self.model.slots.get(&n).cloned().unwrap_or_default();
        let accepted = slot.accepted.as_ref().map(|(ballot, _)| *ballot);
        let ballot = accepted.map_or(Ballot::ZERO, |b| Ballot {
            number: b.number,
            node: b.node + u64::from(!right),
        });
        match life.log.commit(Slot(n), ballot) {
            Err(CommitError::SlotNotFound { .. }) if accepted.is_none() => Ok(()),
            Err(CommitError::BallotMismatch { .. }) if !right && slot.committed.is_none() => Ok(()),
            Err(error) => {
                self.model.committing(n);
                self.stop(&error, "commit")
            }
            Ok(ticket) => {
                ensure!(accepted.is_some(), "slot {n} is empty, and was committed");
                ensure!(right || slot.committed.is_some(), "slot {n} was committed under {ballot}");
                self.model.committing(n);
                // Of a commit that was there before, the ticket says nothing about what came since.
                if slot.committed.is_some() {
                    return self.committed_again(n, ticket, "a commit's ticket, once more");
                }
                self.committed(ticket, wait, "a commit's ticket")
            }
        }
    }

    pub(super) fn commit_batch(
        &mut self,
        life: &Life,
        first: u64,
        count: u64,
        wait: bool,
    ) -> LifeResult {
        let there = |n: &u64| {
            let slot = self.model.slots.get(n);
            slot.and_then(|slot| slot.accepted.as_ref()).map(|(ballot, _)| *ballot)
        };
        let pairs: Vec<_> =
            (first..first + count).map(|n| (n, there(&n).unwrap_or(Ballot::ZERO))).collect();
        let expected: Vec<_> = pairs.iter().map(|(n, _)| there(n).is_some()).collect();
        let slots: Vec<_> = pairs.iter().map(|(n, ballot)| (Slot(*n), *ballot)).collect();
        let done = life.log.commit_batch(&slots);
        for ((n, _), _) in pairs.iter().zip(&expected).filter(|(_, there)| **there) {
            self.model.committing(*n);
        }
        let done = match done {
            Ok(done) => done,
            // Some of it may have been written.
            Err(error) => return self.stop(&error, "commit_batch"),
        };
        let reported: Vec<bool> = done.results.iter().map(Result::is_ok).collect();
        ensure!(
            reported == expected,
            "the batch reports {reported:?} of the slots from {first} on"
        );
        self.committed(done.ticket, wait, "a batch's ticket")
    }

    pub(super) fn commit_through(&mut self, life: &Life, last: u64, wait: bool) -> LifeResult {
        let from = self.model.next();
        let there = |n: &u64| self.model.slots.get(n).is_some_and(|slot| slot.accepted.is_some());
        let whole = (from..=last).all(|n| there(&n));
        match life.log.commit_through(Slot(last)) {
            Err(CommitError::Gap { slot }) if !whole => {
                ensure!(!there(&slot.0), "slot {slot} is no gap");
                Ok(())
            }
            Err(error) => {
                (from..=last).filter(|_| whole).for_each(|n| self.model.committing(n));
                self.stop(&error, "commit_through")
            }
            Ok(_) if !whole => broken!("a gap was passed over"),
            Ok(ticket) => {
                (from..=last).for_each(|n| self.model.committing(n));
                self.committed(ticket, wait, "commit_through's ticket")
            }
        }
    }

    pub(crate) fn learn(
        &mut self,
        life: &Life,
        n: u64,
        ballot: Ballot,
        value: Vec<u8>,
        wait: bool,
    ) -> LifeResult {
        let slot = self.model.attempt(n, ballot, value.clone());
        match life.log.learn(Slot(n), ballot, &value) {
            Err(LearnError::AlreadyCommitted { entry }) => {
                let known = slot.committed.as_deref() == Some(entry.value());
                ensure!(known, "{entry:?} is said to be committed");
                Ok(())
            }
            Err(error) => self.stop(&error, "learn"),
            Ok(ticket) => {
                ensure!(
                    slot.committed.is_none(),
                    "slot {n} was committed, and learned another value"
                );
                slot.accepted = Some((ballot, value));
                self.model.committing(n);
                self.committed(ticket, wait, "learn's ticket")
            }
        }
    }

    pub(super) fn learn_again(&mut self, life: &Life, n: u64, bid: Bid) -> LifeResult {
        let slot = self.model.slots.get(&n);
        let Some(value) = slot.and_then(|slot| slot.committed.clone()) else { return Ok(()) };
        match life.log.learn(Slot(n), self.ballot(bid), &value) {
            Ok(ticket) => self.committed_again(n, ticket, "learn, once more"),
            Err(error) => self.stop(&error, "learn, once more"),
        }
    }

    /// A commit that was there before is acknowledged, and so is durable where the setup asks for
    /// it.
    pub(super) fn committed_again(&mut self, n: u64, ticket: Ticket, what: &str) -> LifeResult {
        if let Err(error) = ticket.blocking_wait() {
            return self.stop(&error, what);
        }
        if self.setup.sync_on_commit
            && let Some(slot) = self.model.slots.get_mut(&n)
        {
            slot.commit_acknowledged = slot.committed.is_some();
        }
        Ok(())
    }
}
