//! Checkpoints, reclaiming and reopening.

use std::sync::{Arc, Mutex};

use esker_consensus::{Mode, Slot};
use esker_disk::{Disk, Op};
use esker_testkit::SplitMix64;

use crate::consensus::{Bid, DIR, Life, LifeResult, SLOT_COUNT, SimEnv, ensure};
use crate::interleaving::On;

impl SimEnv {
    pub(super) fn checkpoint(&mut self, life: &Life) -> LifeResult {
        match life.log.maintenance().checkpoint() {
            Ok(()) => {
                self.model.promise_recorded = self.model.promise;
                self.model.durable(&self.setup);
                Ok(())
            }
            Err(error) => self.stop(&error, "checkpoint"),
        }
    }

    /// Values that are replaced at once fill segments in which little is live.
    pub(crate) fn fill_with_dead(&mut self, life: &Life) -> LifeResult {
        for n in 0..8 {
            let ballot = self.ballot(Bid { rise: 1, node: 0 });
            let value = self.value(11_000);
            self.accept(life, self.model.start() + n % 2, ballot, value, true)?;
        }
        Ok(())
    }

    /// Reclaims space, with a few accepts under rising ballots meanwhile.
    pub(super) fn reclaim_interleaved(
        &mut self,
        life: &mut Life,
        rng: &mut SplitMix64,
    ) -> LifeResult {
        self.fill_with_dead(life)?;
        if rng.percent(70) {
            // Otherwise most of what is copied is in memory, and no call comes between.
            self.reopen(life, true)?;
        }
        let mut calls = Vec::new();
        for rise in 1..2 + rng.below(5) as i64 {
            let value = self.value(rng.index(300));
            let ballot = self.ballot(Bid { rise, node: 0 });
            calls.push((self.model.start() + rng.below(SLOT_COUNT), ballot, value));
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
        let reclaimed = self
            .interleaving
            .clone()
            .during((op, On::Segments), next, || life.log.maintenance().reclaim());
        let done = std::mem::take(&mut *done.lock().unwrap());
        for ((n, ballot, value), reported) in calls.into_iter().zip(done) {
            self.judged(n, ballot, &value, &reported)?;
            if reported.is_ok() {
                self.model.accepted(n, ballot, value, self.setup.mode);
            }
        }
        reclaimed.map(drop).or_else(|error| self.stop(&error, "reclaim"))
    }

    /// Closes and opens; without its note the log is replayed from its oldest record on.
    pub(in crate::consensus) fn reopen(&mut self, life: &mut Life, with_note: bool) -> LifeResult {
        if let Err(error) = life.log.close() {
            return self.stop(&error, "close");
        }
        self.model.closed(&self.setup);
        if !with_note {
            let dir = self.disk.process().open_dir(std::path::Path::new(DIR)).unwrap();
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
