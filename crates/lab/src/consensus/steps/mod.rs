//! The steps of a program: each does one thing, and holds the answer against the model.

mod commits;
mod floor;
mod maintenance;
mod votes;

use esker_consensus::{AcceptError, Ballot, Mode, Ticket};
use esker_testkit::SplitMix64;

use crate::consensus::slot_model::Verdict;
use crate::consensus::{Bid, Life, LifeResult, SimEnv, Step, ensure};

impl SimEnv {
    pub(crate) fn step(&mut self, life: &mut Life, step: &Step) -> LifeResult {
        let start = self.model.start();
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
            Step::TruncateBefore { back, wait } => self.truncate_before(life, back, wait),
            Step::TruncateFrom { slot, wait } => self.truncate_from(life, start + slot, wait),
            Step::Install { ahead, wait } => self.install(life, ahead, wait),
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
    fn committed(&mut self, ticket: Ticket, wait: bool, what: &str) -> LifeResult {
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

    /// Holds an accept's answer against what has to become of it. An error that only a dead disk
    /// can give ends the life.
    pub(crate) fn judged<T>(
        &mut self,
        n: u64,
        ballot: Ballot,
        value: &[u8],
        reported: &Result<T, AcceptError>,
    ) -> LifeResult {
        let verdict = self.model.judge(n, ballot, value, self.setup.room());
        let said = match reported {
            Ok(_) if verdict == Verdict::Same => Verdict::Same,
            Ok(_) => Verdict::Stored,
            Err(AcceptError::StaleBallot { promised }) => {
                let promise = self.model.promise;
                ensure!(*promised == promise, "{promised} is said to be promised, not {promise}");
                Verdict::Stale
            }
            Err(AcceptError::AlreadyCommitted { entry }) => {
                let slot = self.model.slots.get(&n);
                let known = slot.and_then(|slot| slot.committed.as_deref());
                ensure!(known == Some(entry.value()), "{entry:?} is said to be committed");
                Verdict::Committed
            }
            Err(AcceptError::AnotherValue { .. }) => Verdict::Another,
            Err(AcceptError::BufferFull { .. }) => Verdict::Full,
            Err(error) => {
                if verdict == Verdict::Stored {
                    self.model.attempt(n, ballot, value.to_vec());
                    self.model.promise = self.model.promise.max(ballot);
                }
                return self.stop(error, "accept");
            }
        };
        ensure!(said == verdict, "accepting in slot {n} is {said:?}, and should be {verdict:?}");
        Ok(())
    }

    /// An accept's ticket.
    fn acknowledged(&mut self, ticket: Ticket, wait: bool) -> LifeResult {
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
}
