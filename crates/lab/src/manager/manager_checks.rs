//! Compares the contents of a manager's logs with the model.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use esker_consensus::{COMPONENT, LogGuard, logs_on};
use esker_disk::Disk;
use esker_log::ReadOptions;

use super::{DIR, Life, SimEnv, Standing, of_log};
use crate::plan::{LifeResult, Stop, ensure};
use crate::survival::Survival;

impl SimEnv {
    /// Holds what an opening found against what must be there, and learns what it was.
    pub(super) fn recovered(&mut self, life: &Life) -> LifeResult {
        let found: BTreeSet<_> = match life.manager.keys() {
            Ok(found) => found.into_iter().collect(),
            Err(error) => return self.stop(&error, "keys"),
        };
        for key in &found {
            ensure!(
                self.keys.contains_key(key),
                "the key {} is there, and was not added, or was removed",
                key.escape_ascii()
            );
        }
        let lost = |(key, known): (&Vec<u8>, &super::Key)| {
            (known.standing == Standing::Kept && !found.contains(key))
                .then(|| key.escape_ascii().to_string())
        };
        let lost: Vec<_> = self.keys.iter().filter_map(lost).collect();
        ensure!(lost.is_empty(), "keys are lost: {lost:?}");
        self.keys.retain(|key, _| found.contains(key));
        self.recovering.retain(|key, _| found.contains(key));
        self.keys.values_mut().for_each(|known| known.standing = Standing::Kept);
        if !self.crashed {
            return Ok(());
        }
        let mut judged = Ok(());
        for key in &found {
            judged = self.recovered_log(life, key);
            if judged.is_err() {
                break;
            }
        }
        if matches!(judged, Err(Stop::Ended)) {
            return judged;
        }
        // Counted also where a promise was broken.
        self.crashed = false;
        self.survivals.push(sum(std::mem::take(&mut self.recovering).into_values()));
        judged?;
        self.no_log_without_a_key(&found)?;
        self.check_copies()
    }

    fn recovered_log(&mut self, life: &Life, key: &[u8]) -> LifeResult {
        let guard = match life.manager.get(key) {
            Ok(guard) => guard,
            Err(error) => return self.stop(&error, "opening a log"),
        };
        let Some(known) = self.keys.get_mut(key) else { return Ok(()) };
        let name = key.escape_ascii();
        let of_key = |stop| match stop {
            Stop::Broken(what) => Stop::Broken(format!("{name}: {what}")),
            Stop::Ended => Stop::Ended,
        };
        let judged = known.log.recovered(&of_log(&guard)).map_err(of_key);
        if let Some(now) = known.log.survivals.pop() {
            // A cut in recovery: the losses of both crashes count.
            let before = self.recovering.insert(key.to_vec(), now);
            if let (Some(before), Some(sum)) = (before, self.recovering.get_mut(key)) {
                *sum = Survival {
                    recovered: now.recovered,
                    lost_calls: before.lost_calls + now.lost_calls,
                    ..before
                };
            }
        }
        judged?;
        known.was_open = true;
        let disk = &self.disk;
        known.snapshots.look(&guard, || disk.is_on()).map_err(of_key)?;
        self.covered(&guard)
    }

    /// A whole snapshot covers what was truncated.
    pub(super) fn covered(&self, guard: &LogGuard) -> LifeResult {
        let Some(known) = self.keys.get(guard.key()) else { return Ok(()) };
        let start = known.log.model.start();
        let covering = known.snapshots.newest(|at| at + 1 >= start);
        ensure!(
            start == 0 || covering.is_some(),
            "slots below {start} are truncated, and no whole snapshot covers them: {:?}",
            known.snapshots
        );
        Ok(())
    }

    /// Each log in the directory belongs to a key.
    fn no_log_without_a_key(&self, found: &BTreeSet<Vec<u8>>) -> LifeResult {
        let disk = self.disk.process();
        let stop = |error: &dyn std::fmt::Debug| match self.disk.is_on() {
            true => Stop::Broken(format!("the labels of the logs cannot be read: {error:?}")),
            false => Stop::Ended,
        };
        let kept = logs_on(Arc::new(disk.clone()), DIR).map_err(|error| stop(&error))?;
        let kept = kept.unwrap_or_default();
        let names = disk.open_dir(Path::new(DIR)).and_then(|dir| dir.list());
        for name in names.map_err(|error| stop(&error))? {
            if name == "registry" {
                continue;
            }
            let options = ReadOptions::on(Arc::new(disk.clone()));
            let metadata =
                esker_log::component::app_metadata(Path::new(DIR).join(&name), COMPONENT, options);
            let Some(metadata) = metadata.map_err(|error| stop(&error))? else { continue };
            // A number comes before the label. A log that was only just created has none.
            let is_of_a_key = match metadata.get(8..) {
                Some(label) => found.contains(label),
                None => kept.iter().any(|log| log.dir.ends_with(&name)),
            };
            ensure!(is_of_a_key, "there is a log of no key: {name}, {}", metadata.escape_ascii());
        }
        Ok(())
    }

    /// Compares all that can be read with the model.
    pub(super) fn look_at_all(&mut self, life: &Life) -> LifeResult {
        for number in 0..super::manager_program::KEY_COUNT {
            if !self.keys.contains_key(&super::key(number)) {
                continue;
            }
            let guard = self.get(life, number)?;
            let disk = self.disk.clone();
            let known = self.known(number);
            known.log.look(&of_log(&guard))?;
            known.snapshots.look(&guard, || disk.is_on())?;
            self.covered(&guard)?;
            drop(guard);
            self.restore(life, number)?;
        }
        Ok(())
    }
}

fn sum(all: impl Iterator<Item = Survival>) -> Survival {
    all.fold(Survival::default(), |sum, one| Survival {
        accepted: sum.accepted + one.accepted,
        durable: sum.durable + one.durable,
        recovered: sum.recovered + one.recovered,
        lost_calls: sum.lost_calls + one.lost_calls,
        ..sum
    })
}
