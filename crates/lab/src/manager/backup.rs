//! Backups: all logs as of one moment, or no manager.

use std::sync::{Arc, Mutex};

use esker_consensus::{Mode, ReadOnlyReason, Slot};
use esker_disk::Op;
use esker_testkit::SplitMix64;

use super::copies::{Accept, BackupCopy};
use super::{Life, SimEnv, key, of_log};
use crate::consensus::slot_model::Model;
use crate::consensus::{self, Bid, SLOT_COUNT};
use crate::interleaving::On;
use crate::plan::{LifeResult, Stop, ensure};

impl SimEnv {
    /// Copies all logs, with accepts in two of them meanwhile, always one after the other.
    pub(super) fn backup(&mut self, life: &Life, seed: u64) -> LifeResult {
        let mut rng = SplitMix64::new(seed);
        let numbers = [rng.below(2), 2 + rng.below(2)];
        let guards = [self.get(life, numbers[0])?, self.get(life, numbers[1])?];
        let logs = guards.each_ref().map(|guard| (**guard).clone());
        // Something that is not durable yet.
        for (number, guard) in numbers.iter().zip(&guards) {
            let step = consensus::Step::Accept {
                slot: rng.below(SLOT_COUNT),
                bid: Bid { rise: 0, node: 0 },
                len: 20,
                wait: false,
            };
            self.known(*number).log.step(&mut of_log(guard), &step)?;
        }
        self.close_unused(life)?;
        let calls = self.accepts(&mut rng, numbers);
        let dir = self.begin_copy();
        let done = Arc::new(Mutex::new(Vec::new()));
        let (mut left, made) = (calls.clone().into_iter(), Arc::clone(&done));
        let next = move || {
            for log in &logs {
                let Some(Accept { slot, ballot, value, .. }) = left.next() else { return false };
                made.lock().unwrap().push(log.accept(Slot(slot), ballot, &value));
            }
            true
        };
        let op = rng.pick(&[Op::Read, Op::Write]);
        let interleaving = self.interleaving.clone();
        let copied = interleaving.during((op, On::Segments), next, || life.manager.backup(&dir));
        let done = std::mem::take(&mut *done.lock().unwrap());
        let mode = self.setup.mode;
        for (call, reported) in calls.into_iter().zip(done) {
            let Some(known) = self.keys.get_mut(&call.key) else { continue };
            known.log.judged(call.slot, call.ballot, &call.value, &reported)?;
            if reported.is_ok() {
                let Accept { slot, ballot, value, .. } = call.clone();
                known.log.model.accepted(slot, ballot, value, mode);
                self.copies.last_mut().unwrap().accepted.push(call);
            }
        }
        match copied {
            Err(error) => self.stop(&error, "backup"),
            Ok(copied) => {
                let copy = self.copies.last_mut().unwrap();
                copy.acknowledged = true;
                ensure!(
                    copied.logs == copy.base.len(),
                    "a backup has {} logs of {}",
                    copied.logs,
                    copy.base.len()
                );
                if rng.percent(30) { self.check_copies() } else { Ok(()) }
            }
        }
    }

    /// Accepts in two logs, by turns.
    fn accepts(&mut self, rng: &mut SplitMix64, numbers: [u64; 2]) -> Vec<Accept> {
        let mut calls = Vec::new();
        for pair in 0..1 + rng.below(6) as i64 {
            for number in numbers {
                let log = &mut self.known(number).log;
                let ballot = log.ballot(Bid { rise: pair, node: 1 });
                let (slot, value) = (log.model.start() + rng.below(SLOT_COUNT), log.value(30));
                calls.push(Accept { key: key(number), slot, ballot, value });
            }
        }
        calls
    }

    /// Records the logs as they are, for a copy. Returns the directory for it.
    fn begin_copy(&mut self) -> String {
        let base = self.keys.iter();
        let base = base
            .map(|(key, known)| (key.clone(), (known.log.model.clone(), known.snapshots.clone())))
            .collect();
        let dir = format!("/copy-{}", self.fresh());
        self.copies.push(BackupCopy {
            dir: dir.clone(),
            base,
            accepted: Vec::new(),
            acknowledged: false,
        });
        dir
    }

    /// Records the logs that were closed to make room: a backup has all that they accepted.
    fn close_unused(&mut self, life: &Life) -> LifeResult {
        for number in 0..super::manager_program::KEY_COUNT {
            let name = key(number);
            let is_open = life.manager.get_if_open(&name).is_some();
            if let Some(known) = self.keys.get_mut(&name).filter(|known| known.was_open && !is_open)
            {
                known.log.model.closed(&self.setup);
                known.was_open = false;
            }
        }
        Ok(())
    }

    /// Opens the backups that were not looked at.
    pub(super) fn check_copies(&mut self) -> LifeResult {
        while let Some(copy) = self.copies.last() {
            self.check_copy(copy)?;
            self.copies.pop();
        }
        Ok(())
    }

    fn check_copy(&self, copy: &BackupCopy) -> LifeResult {
        let broken = |what: String| Err(Stop::Broken(format!("the backup {}: {what}", copy.dir)));
        let life = match self.opened(&copy.dir, true) {
            Ok(life) => life,
            Err(_) if self.disk.is_on() && !copy.acknowledged => return Ok(()),
            Err(error) => return self.stop(&error, "opening a backup"),
        };
        let keys = match life.manager.keys() {
            Ok(keys) => keys,
            Err(error) => return self.stop(&error, "keys of a backup"),
        };
        if keys.iter().ne(copy.base.keys()) {
            return broken("it has other keys".into());
        }
        let moments = copy.moments(self.setup.mode);
        let mut possible: Vec<_> = (0..moments.len()).collect();
        let mut last = String::new();
        for key in &keys {
            let guard = match life.manager.get(key) {
                Ok(guard) => guard,
                Err(error) => return self.stop(&error, "opening a log of a backup"),
            };
            ensure!(
                guard.stats().read_only == Some(ReadOnlyReason::Copied),
                "the backup {} takes writes under the number of the original",
                copy.dir
            );
            let of_log = of_log(&guard);
            let mut fitting = Vec::new();
            for moment in std::mem::take(&mut possible) {
                match self.is_as_of(&of_log, &moments[moment][key]) {
                    Ok(()) => fitting.push(moment),
                    Err(Stop::Broken(what)) => last = format!("{}: {what}", key.escape_ascii()),
                    Err(Stop::Ended) => return Err(Stop::Ended),
                }
            }
            possible = fitting;
            if possible.is_empty() {
                return broken(format!("it is not as of one moment: {last}"));
            }
            let mut snapshots = copy.base[key].1.without_corrupt();
            let disk = &self.disk;
            match snapshots.look(&guard, || disk.is_on()) {
                Err(Stop::Broken(what)) => return broken(what),
                looked => looked?,
            }
        }
        self.close_all(&life)
    }

    /// Whether a log of a backup is as this. In volatile mode it may lack what only memory had.
    fn is_as_of(&self, life: &consensus::Life, model: &Model) -> LifeResult {
        let mut log = consensus::SimEnv::on(self.disk.clone(), self.setup, 0);
        log.model = model.clone();
        match self.setup.mode {
            Mode::Durable => {
                log.model.closed(&self.setup);
                log.look(life)
            }
            _ => log.recovered(life),
        }
    }
}
