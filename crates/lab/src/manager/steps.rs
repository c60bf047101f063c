//! The steps of a program that are about keys and logs: each does one thing, and holds the answer
//! against the model.

use esker_consensus::{LogGuard, ManagerError};

use super::{Key, Life, SimEnv, Standing, Step, key, of_log};
use crate::consensus::{self, Bid};
use crate::plan::{LifeResult, Stop, ensure};

impl SimEnv {
    pub(super) fn step(&mut self, life: &mut Life, step: &Step) -> LifeResult {
        match step {
            Step::Log { key, steps } => self.use_log(life, *key, steps),
            Step::Decide { key, count } => self.decide(life, *key, *count),
            Step::Snapshot { key, back, len, part } => {
                self.snapshot(life, *key, *back, *len, *part)
            }
            Step::Keep { key, count } => self.keep(life, *key, *count),
            Step::TruncateThrough { key, back } => self.truncate_through(life, *key, *back),
            Step::Restore { key } => self.restore(life, *key),
            Step::Ship { from, to, interrupted } => self.ship(life, *from, *to, interrupted),
            Step::Corrupt { key, bit } => self.corrupt(life, *key, *bit),
            Step::Reclaim { key } => self.reclaim(life, *key),
            Step::Remove { key } => self.remove(life, *key),
            Step::Close { key } => self.close(life, *key),
            Step::CompactRegistry => {
                let compacted = life.manager.compact_registry();
                compacted.or_else(|error| self.stop(&error, "compact_registry"))
            }
            Step::Backup { seed } => self.backup(life, *seed),
            Step::Reopen => self.reopen(life),
        }
    }

    /// The log of a key, opened or created, with everything in it as it should be where it was not
    /// open.
    pub(super) fn get(&mut self, life: &Life, number: u64) -> LifeResult<LogGuard> {
        let name = key(number);
        if !self.keys.contains_key(&name) {
            let nonce = self.fresh();
            let log = consensus::SimEnv::on(self.disk.clone(), self.setup, nonce);
            let (standing, snapshots) = (Standing::Adding, super::SnapshotModel::default());
            self.keys.insert(name.clone(), Key { standing, log, snapshots, was_open: false });
        }
        let is_open = life.manager.get_if_open(&name).is_some();
        let guard = match life.manager.get(&name) {
            Ok(guard) => guard,
            Err(error) => return self.stop(&error, "get"),
        };
        let Some(known) = self.keys.get_mut(&name) else { return Ok(guard) };
        known.standing = Standing::Kept;
        if !is_open {
            if std::mem::replace(&mut known.was_open, true) {
                // It made room for another one.
                known.log.model.closed(&self.setup);
            }
            known.log.look(&of_log(&guard))?;
        }
        Ok(guard)
    }

    /// The model of the log of a key that [`SimEnv::get`] returned.
    pub(super) fn known(&mut self, number: u64) -> &mut Key {
        self.keys.get_mut(&key(number)).unwrap()
    }

    fn use_log(&mut self, life: &Life, number: u64, steps: &[consensus::Step]) -> LifeResult {
        let guard = self.get(life, number)?;
        let mut of_log = of_log(&guard);
        for step in steps {
            let done = self.known(number).log.step(&mut of_log, step);
            if !self.disk.is_on() {
                return Err(Stop::Ended);
            }
            done?;
        }
        Ok(())
    }

    fn decide(&mut self, life: &Life, number: u64, count: u64) -> LifeResult {
        let guard = self.get(life, number)?;
        let of_log = of_log(&guard);
        for more in 0..count {
            let log = &mut self.known(number).log;
            let (slot, value) = (log.model.run_from(log.model.decided), log.value(40));
            let ballot = log.ballot(Bid { rise: 0, node: 0 });
            log.learn(&of_log, slot, ballot, value, more + 1 == count)?;
        }
        Ok(())
    }

    fn reclaim(&mut self, life: &Life, number: u64) -> LifeResult {
        let guard = self.get(life, number)?;
        self.known(number).log.fill_with_dead(&of_log(&guard))?;
        guard.maintenance().reclaim().map(drop).or_else(|error| self.stop(&error, "reclaim"))
    }

    fn remove(&mut self, life: &Life, number: u64) -> LifeResult {
        let name = key(number);
        if let Some(known) = self.keys.get_mut(&name) {
            known.standing = Standing::Removing;
        }
        match life.manager.remove(&name) {
            Err(error) => self.stop(&error, "remove"),
            Ok(there) => {
                let known = self.keys.remove(&name).is_some();
                ensure!(there == known, "the log of key {number} is said to be there: {there}");
                Ok(())
            }
        }
    }

    fn close(&mut self, life: &Life, number: u64) -> LifeResult {
        let name = key(number);
        match life.manager.close(&name) {
            Err(error) => self.stop(&error, "close"),
            Ok(was_open) => {
                if let Some(known) = self.keys.get_mut(&name).filter(|_| was_open) {
                    known.log.model.closed(&self.setup);
                    known.was_open = false;
                }
                Ok(())
            }
        }
    }

    /// Closes and opens.
    pub(super) fn reopen(&mut self, life: &mut Life) -> LifeResult {
        self.close_all(life)?;
        for known in self.keys.values_mut() {
            if std::mem::take(&mut known.was_open) {
                known.log.model.closed(&self.setup);
            }
        }
        *life = self.open()?;
        Ok(())
    }

    /// Closes every log and then the manager. One after the other: `close_all` has threads, whose
    /// order is not that of the seed.
    pub(super) fn close_all(&self, life: &Life) -> LifeResult {
        let closed = life.manager.keys().map_err(ManagerError::from).and_then(|keys| {
            keys.iter().try_for_each(|key| life.manager.close(key).map(drop))?;
            life.manager.close_all()
        });
        closed.or_else(|error| self.stop(&error, "closing"))
    }
}
