//! The steps of a program: each does one thing, and holds the answer against the model.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use esker_consensus::{Ballot, Error, Mode, Result, Slot, SnapshotBounds, Ticket};
use esker_disk::{Disk, Op};
use esker_testkit::SplitMix64;

use super::model::{SlotModel, Verdict};
use super::{Bid, Life, Lived, SLOTS, SimEnv, Step, broken, ensure};
use crate::interleaving::On;

impl SimEnv {
    pub(crate) fn step(&mut self, life: &mut Life, step: &Step) -> Lived {
        let start = self.model.start;
        match *step {
            Step::Promise { bid, wait } => self.promise(life, self.ballot(bid), wait),
            Step::Accept { slot, bid, len, wait } => {
                let value = self.value(len);
                self.accept(life, start + slot, self.ballot(bid), value, wait)
            }
            Step::AcceptBatch { slot, count, bid, len, wait } => {
                self.accept_batch(life, start + slot..start + slot + count, bid, len, wait)
            }
            Step::AcceptAgain { slot, bid } => self.accept_again(life, start + slot, bid),
            Step::Commit { slot, right, wait } => self.commit(life, start + slot, right, wait),
            Step::CommitBatch { slot, count, wait } => {
                self.commit_batch(life, start + slot, count, wait)
            }
            Step::CommitThrough { slot, wait } => self.commit_through(life, start + slot, wait),
            Step::Learn { slot, bid, wait } => {
                let value = self.value(40);
                self.learn(life, start + slot, self.ballot(bid), value, wait)
            }
            Step::LearnAgain { slot, bid } => self.learn_again(life, start + slot, bid),
            Step::TruncateBefore { back } => self.truncate_before(life, back),
            Step::TruncateFrom { slot } => self.truncate_from(life, start + slot),
            Step::Install { ahead } => self.install(life, ahead),
            Step::Checkpoint => self.checkpoint(life),
            Step::ReclaimInterleaved { seed } => {
                self.reclaim_interleaved(life, &mut SplitMix64::new(seed))
            }
            Step::PromiseInterleaved { bid, back } => self.promise_interleaved(life, bid, back),
            Step::Reopen => self.reopen(life, true),
            Step::Look => self.look(life),
        }
    }

    pub(crate) fn ballot(&self, bid: Bid) -> Ballot {
        bid.over(self.model.promise)
    }

    /// A commit's ticket: durable where the setup asks for it.
    fn committed(&mut self, ticket: Ticket, wait: bool, what: &str) -> Lived {
        if !wait {
            return Ok(());
        }
        if let Err(error) = ticket.blocking_wait() {
            return self.stop(&error, what);
        }
        if self.setup.sync_on_commit {
            self.model.durable(&self.setup);
        }
        Ok(())
    }

    fn promise(&mut self, life: &Life, ballot: Ballot, wait: bool) -> Lived {
        let stale = ballot < self.model.promise;
        match life.log.promise(ballot, Slot(self.model.start)) {
            Err(Error::StaleBallot { promised }) if stale => {
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
                for (n, slot) in &self.model.slots {
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

    /// Holds an accept's answer against what has to become of it. An error that only a dead disk
    /// can give ends the life.
    pub(crate) fn judged<T>(
        &mut self,
        n: u64,
        ballot: Ballot,
        value: &[u8],
        reported: &Result<T>,
    ) -> Lived {
        let verdict = self.model.judge(n, ballot, value, self.setup.room());
        let said = match reported {
            Ok(_) if verdict == Verdict::Same => Verdict::Same,
            Ok(_) => Verdict::Stored,
            Err(Error::StaleBallot { promised }) => {
                let promise = self.model.promise;
                ensure!(*promised == promise, "{promised} is said to be promised, not {promise}");
                Verdict::Stale
            }
            Err(Error::AlreadyCommitted { entry }) => {
                let slot = self.model.slots.get(&n);
                let known = slot.and_then(|slot| slot.committed.as_deref());
                ensure!(known == Some(entry.value()), "{entry:?} is said to be committed");
                Verdict::Committed
            }
            Err(Error::AnotherValue { .. }) => Verdict::Another,
            Err(Error::BufferFull { .. }) => Verdict::Full,
            Err(error) => {
                if verdict == Verdict::Stored {
                    let slot = self.model.slots.entry(n).or_default();
                    slot.attempted.push((ballot, value.to_vec()));
                    self.model.promise = self.model.promise.max(ballot);
                }
                return self.stop(error, "accept");
            }
        };
        ensure!(said == verdict, "accepting in slot {n} is {said:?}, and should be {verdict:?}");
        Ok(())
    }

    /// An accept's ticket.
    fn acknowledged(&mut self, ticket: Ticket, wait: bool) -> Lived {
        if !wait {
            return Ok(());
        }
        if let Err(error) = ticket.blocking_wait() {
            return self.stop(&error, "an accept's ticket");
        }
        if self.setup.mode == Mode::Durable {
            self.model.durable(&self.setup);
        }
        Ok(())
    }

    fn accept(&mut self, life: &Life, n: u64, ballot: Ballot, value: Vec<u8>, wait: bool) -> Lived {
        let reported = life.log.accept(Slot(n), ballot, &value);
        self.judged(n, ballot, &value, &reported)?;
        let Ok(ticket) = reported else { return Ok(()) };
        self.model.accepted(n, ballot, value, self.setup.mode);
        self.acknowledged(ticket, wait)
    }

    /// The values up to the first that is refused are accepted.
    fn accept_batch(
        &mut self,
        life: &Life,
        slots: std::ops::Range<u64>,
        bid: Bid,
        len: usize,
        wait: bool,
    ) -> Lived {
        let ballot = self.ballot(bid);
        let values: Vec<_> = slots.map(|n| (n, self.value(len))).collect();
        let pairs: Vec<_> = values.iter().map(|(n, value)| (Slot(*n), value.as_slice())).collect();
        let reported = life.log.accept_batch(ballot, &pairs);
        let (partly, reported) = match reported {
            Err(Error::BatchFailed { accepted, ticket, source }) => {
                (Some((accepted, ticket)), Err(*source))
            }
            reported => (None, reported),
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

    /// What is there is acknowledged again, and changes nothing.
    fn accept_again(&mut self, life: &Life, n: u64, bid: Bid) -> Lived {
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

    fn commit(&mut self, life: &Life, n: u64, right: bool, wait: bool) -> Lived {
        let slot = self.model.slots.get(&n).cloned().unwrap_or_default();
        let accepted = slot.accepted.as_ref().map(|(ballot, _)| *ballot);
        let ballot = accepted.map_or(Ballot::ZERO, |b| Ballot {
            number: b.number,
            node: b.node + u64::from(!right),
        });
        match life.log.commit(Slot(n), ballot) {
            Err(Error::SlotNotFound { .. }) if accepted.is_none() => Ok(()),
            Err(Error::BallotMismatch { .. }) if !right && slot.committed.is_none() => Ok(()),
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

    fn commit_batch(&mut self, life: &Life, first: u64, count: u64, wait: bool) -> Lived {
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

    fn commit_through(&mut self, life: &Life, last: u64, wait: bool) -> Lived {
        let from = self.model.decided;
        let there = |n: &u64| self.model.slots.get(n).is_some_and(|slot| slot.accepted.is_some());
        let whole = (from..=last).all(|n| there(&n));
        match life.log.commit_through(Slot(last)) {
            Err(Error::Gap { slot }) if !whole => {
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
    ) -> Lived {
        let slot = self.model.slots.entry(n).or_default();
        slot.attempted.push((ballot, value.clone()));
        match life.log.learn(Slot(n), ballot, &value) {
            Err(Error::AlreadyCommitted { entry }) => {
                let known = slot.committed.as_deref() == Some(entry.value());
                ensure!(known, "{entry:?} is said to be committed");
                Ok(())
            }
            Err(error) => {
                self.model.deciding = self.model.deciding.max(self.model.run_with(n));
                self.stop(&error, "learn")
            }
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

    fn learn_again(&mut self, life: &Life, n: u64, bid: Bid) -> Lived {
        let slot = self.model.slots.get(&n);
        let Some(value) = slot.and_then(|slot| slot.committed.clone()) else { return Ok(()) };
        match life.log.learn(Slot(n), self.ballot(bid), &value) {
            Ok(ticket) => self.committed_again(n, ticket, "learn, once more"),
            Err(error) => self.stop(&error, "learn, once more"),
        }
    }

    /// A commit that was there before is acknowledged, and so is durable where the setup asks for
    /// it.
    fn committed_again(&mut self, n: u64, ticket: Ticket, what: &str) -> Lived {
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

    fn checkpoint(&mut self, life: &Life) -> Lived {
        match life.log.checkpoint() {
            Ok(()) => {
                self.model.promise_recorded = self.model.promise;
                self.model.durable(&self.setup);
                Ok(())
            }
            Err(error) => self.stop(&error, "checkpoint"),
        }
    }

    /// Values that are replaced at once fill segments in which little is live.
    pub(crate) fn fill_with_dead(&mut self, life: &Life) -> Lived {
        for n in 0..8 {
            let ballot = self.ballot(Bid { rise: 1, node: 0 });
            let value = self.value(11_000);
            self.accept(life, self.model.start + n % 2, ballot, value, true)?;
        }
        Ok(())
    }

    /// Reclaims space, with a few accepts under rising ballots meanwhile.
    fn reclaim_interleaved(&mut self, life: &mut Life, rng: &mut SplitMix64) -> Lived {
        self.fill_with_dead(life)?;
        if rng.percent(70) {
            // Otherwise most of what is copied is in memory, and no call comes between.
            self.reopen(life, true)?;
        }
        let mut calls = Vec::new();
        for rise in 1..2 + rng.below(5) as i64 {
            let value = self.value(rng.index(300));
            let ballot = self.ballot(Bid { rise, node: 0 });
            calls.push((self.model.start + rng.below(SLOTS), ballot, value));
        }
        let done = Arc::new(Mutex::new(Vec::new()));
        let (mut left, made) = (calls.clone().into_iter(), Arc::clone(&done));
        let log = life.log.clone();
        let next = move || {
            let Some((slot, ballot, value)) = left.next() else { return false };
            made.lock().unwrap().push(log.accept(Slot(slot), ballot, &value));
            true
        };
        // Reads come before what is read is copied, and writes after that.
        let op = rng.pick(&[Op::Read, Op::Write]);
        let reclaimed =
            self.interleaving.clone().during((op, On::Segments), next, || life.log.reclaim());
        let done = std::mem::take(&mut *done.lock().unwrap());
        for ((n, ballot, value), reported) in calls.into_iter().zip(done) {
            self.judged(n, ballot, &value, &reported)?;
            if reported.is_ok() {
                self.model.accepted(n, ballot, value, self.setup.mode);
            }
        }
        reclaimed.map(drop).or_else(|error| self.stop(&error, "reclaim"))
    }

    /// The answer to a promise is whole, or says that slots of it were truncated meanwhile.
    fn promise_interleaved(&mut self, life: &Life, bid: Bid, back: u64) -> Lived {
        let ballot = self.ballot(bid);
        if ballot < self.model.promise {
            return Ok(());
        }
        // A few decided slots, so that there is something to truncate.
        for n in self.model.start..self.model.start + 4 {
            let value = self.value(8);
            self.learn(life, n, ballot, value, true)?;
        }
        self.promise(life, ballot, true)?;
        let promised = match life.log.promise(ballot, Slot(self.model.start)) {
            Ok(ticket) => ticket.blocking_wait(),
            Err(error) => Err(error),
        };
        let promised = match promised {
            Ok(promised) => promised,
            Err(error) => return self.stop(&error, "a promise"),
        };
        let has_entry = |slot: &SlotModel| slot.accepted.is_some() || slot.committed.is_some();
        let slots = self.model.slots.iter();
        let before: Vec<_> = slots.filter(|(_, slot)| has_entry(slot)).map(|(n, _)| *n).collect();
        let mut truncated = None;
        let mut seen = Vec::new();
        let visited = promised.for_each(|entry| {
            seen.push(entry.slot().0);
            if truncated.is_none() {
                truncated = Some(self.truncate_before(life, back));
            }
            ControlFlow::Continue(())
        });
        truncated.unwrap_or(Ok(()))?;
        match visited {
            Ok(_) => {
                ensure!(seen == before, "the promise reports {seen:?} of {before:?}");
                Ok(())
            }
            Err(Error::Truncated { .. }) => {
                let unseen = before.iter().find(|n| !seen.contains(n));
                let start = self.model.start;
                ensure!(
                    unseen.is_some_and(|n| *n < start),
                    "the answer was refused, and {unseen:?} is its first unseen slot, from {start} on"
                );
                Ok(())
            }
            Err(error) => self.stop(&error, "a promise's answer"),
        }
    }

    fn truncate_before(&mut self, life: &Life, back: u64) -> Lived {
        let to = self.model.decided.saturating_sub(back);
        let app_state = self.model.raising(to, back.is_multiple_of(2));
        let truncated = match app_state {
            None => life.log.truncate_before(Slot(to)),
            Some(app_state) => life.log.truncate_before_with(Slot(to), &app_state.to_le_bytes()),
        };
        match truncated {
            Err(error) => self.stop(&error, "truncate_before"),
            Ok(()) => {
                self.raised(to, app_state.is_some());
                self.below_the_floor(life)
            }
        }
    }

    /// The floor is durable at `to` or above, with the application's state if one was given.
    pub(crate) fn raised(&mut self, to: u64, app_state: bool) {
        let moved = app_state || to > self.model.start;
        self.model.started(to);
        if moved {
            self.model.promise_recorded = self.model.promise;
            self.model.durable(&self.setup);
        }
    }

    fn below_the_floor(&self, life: &Life) -> Lived {
        let Some(floor) = self.model.start.checked_sub(1) else { return Ok(()) };
        let guard = life.log.pin();
        let high = Ballot { number: u64::MAX, node: 0 };
        let said = [
            life.log.read(Slot(floor), &guard).err(),
            life.log.read_committed(Slot(floor), &guard).err(),
            life.log.offset_of(Slot(floor)).err(),
            life.log.accept(Slot(floor), high, b"late").err(),
            life.log.commit(Slot(floor), high).err(),
            life.log.learn(Slot(floor), high, b"late").err(),
        ];
        for error in said {
            match error {
                Some(Error::Truncated { floor: reported }) if reported == Slot(floor) => {}
                Some(error) if !self.disk.is_on() => return self.stop(&error, ""),
                other => broken!("below the floor {floor}: {other:?}"),
            }
        }
        Ok(())
    }

    fn truncate_from(&mut self, life: &Life, n: u64) -> Lived {
        let slots = &self.model.slots;
        let highest = slots.iter().rev().find(|(_, slot)| slot.committed.is_some());
        let highest = highest.map(|(n, _)| *n).max(self.model.decided.checked_sub(1));
        match life.log.truncate_from(Slot(n)) {
            Err(Error::BelowFrontier { committed }) => {
                ensure!(
                    highest == Some(committed.0) && committed >= Slot(n),
                    "{committed} is no reason"
                );
                Ok(())
            }
            Err(error) => {
                self.model.cutting = Some(n);
                self.stop(&error, "truncate_from")
            }
            Ok(()) => {
                ensure!(highest.is_none_or(|highest| highest < n), "committed slots were dropped");
                let mut dropped = false;
                for (_, slot) in self.model.slots.range_mut(n..) {
                    dropped |= slot.accepted.take().is_some();
                    slot.acknowledged = None;
                }
                if dropped {
                    self.model.durable(&self.setup);
                }
                Ok(())
            }
        }
    }

    fn install(&mut self, life: &Life, ahead: u64) -> Lived {
        let floor = self.model.decided + ahead / 2;
        let frontier = floor + ahead;
        let app_state = self.model.raising(floor + 1, ahead.is_multiple_of(2));
        self.model.deciding = self.model.deciding.max(frontier + 1);
        let bounds = SnapshotBounds { floor: Slot(floor), frontier: Slot(frontier) };
        let installed = match app_state {
            None => life.log.install(bounds),
            Some(app_state) => life.log.install_with(bounds, &app_state.to_le_bytes()),
        };
        match installed {
            Err(error) => self.stop(&error, "install"),
            Ok(()) => {
                self.model.decided = self.model.decided.max(frontier + 1);
                // The floor always moves here, and durably.
                self.raised(floor + 1, app_state.is_some());
                self.below_the_floor(life)
            }
        }
    }

    /// Closes and opens; without its note the log is replayed from its oldest record on.
    pub(super) fn reopen(&mut self, life: &mut Life, with_note: bool) -> Lived {
        if let Err(error) = life.log.close() {
            return self.stop(&error, "close");
        }
        self.model.closed(&self.setup);
        if !with_note {
            let dir = self.disk.process().open_dir(std::path::Path::new(super::DIR)).unwrap();
            dir.unlink("note").unwrap();
        }
        let all = |sim_env: &Self| {
            let slots = sim_env.model.slots.iter();
            let slots: Vec<_> =
                slots.map(|(n, s)| (*n, s.accepted.clone(), s.committed.clone())).collect();
            (slots, sim_env.model.promise)
        };
        // What a crash forgot in volatile mode may be found again by reading everything.
        let exact = with_note || self.setup.mode == Mode::Durable;
        let before = all(self);
        *life = self.open()?;
        ensure!(!exact || before == all(self), "an orderly end changed something");
        Ok(())
    }
}
