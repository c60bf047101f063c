//! The requests of the users, counted and timed by stage.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use esker_bench::measure::latency::Latencies;
use esker_oracle::history::{self, Call, Violation};

/// The shards in which users count, so that they seldom wait for each other.
const SHARD_COUNT: usize = 16;

/// The requests that ended in one stage.
#[derive(Debug, Clone)]
pub struct StageTally {
    /// The times of the requests that got a timestamp.
    pub times: Latencies,
    /// The requests that got none, by what happened.
    pub failed: BTreeMap<String, u64>,
}

impl StageTally {
    pub fn new() -> Self {
        Self { times: Latencies::new(), failed: BTreeMap::new() }
    }

    /// Takes over what another counted.
    pub fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        for (class, count) in &other.failed {
            *self.failed.entry(class.clone()).or_default() += count;
        }
    }

    pub fn answered(&self) -> u64 {
        self.times.count()
    }

    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    pub fn requests(&self) -> u64 {
        self.answered() + self.failures()
    }
}

/// Calls of equal distance: all of them, until there are too many, and then every second, fourth
/// and so on.
#[derive(Debug)]
struct Sample {
    calls: Vec<Call>,
    most: usize,
    every: u64,
    offered: u64,
}

impl Sample {
    fn add(&mut self, call: Call) {
        if self.offered.is_multiple_of(self.every) {
            if self.calls.len() >= self.most {
                let mut is_kept = false;
                self.calls.retain(|_| {
                    is_kept = !is_kept;
                    is_kept
                });
                self.every *= 2;
            }
            if self.offered.is_multiple_of(self.every) {
                self.calls.push(call);
            }
        }
        self.offered += 1;
    }
}

#[derive(Debug)]
struct Shard {
    stages: Vec<StageTally>,
    sample: Sample,
}

/// How many timestamps were compared, and what was wrong with them.
#[derive(Debug)]
pub struct HistoryCheck {
    pub calls: u64,
    pub violation: Option<Violation>,
}

/// The requests of all users.
#[derive(Debug)]
pub struct Tally(Vec<Mutex<Shard>>);

impl Tally {
    /// Creates a tally of `stages` stages, which keeps at most `most_calls` calls for the check of
    /// their order.
    pub fn new(stages: usize, most_calls: usize) -> Self {
        let most = (most_calls / SHARD_COUNT).max(2);
        let shard = || {
            let sample = Sample { calls: Vec::new(), most, every: 1, offered: 0 };
            Mutex::new(Shard { stages: vec![StageTally::new(); stages], sample })
        };
        Self((0..SHARD_COUNT).map(|_| shard()).collect())
    }

    fn with_stage(
        &self,
        user: u32,
        stage: usize,
        change: impl FnOnce(&mut StageTally, &mut Sample),
    ) {
        let shard = self.0.get(user as usize % SHARD_COUNT);
        if let Some(mut shard) = shard.map(lock)
            && let Shard { stages, sample } = &mut *shard
            && let Some(seen) = stages.get_mut(stage)
        {
            change(seen, sample);
        }
    }

    /// A request got a timestamp.
    pub fn answered(&self, user: u32, stage: usize, call: Call) {
        let took = Duration::from_nanos(call.returned.saturating_sub(call.called));
        self.with_stage(user, stage, |seen, sample| {
            seen.times.add(took);
            sample.add(call);
        });
    }

    /// A request got none.
    pub fn failed(&self, user: u32, stage: usize, class: String) {
        self.with_stage(user, stage, |seen, _| *seen.failed.entry(class).or_default() += 1);
    }

    /// The requests of a stage so far.
    pub fn stage(&self, stage: usize) -> StageTally {
        let mut all = StageTally::new();
        for shard in &self.0 {
            if let Some(seen) = lock(shard).stages.get(stage) {
                all.merge(seen);
            }
        }
        all
    }

    /// Checks that the timestamps are unique and in order: all, or the sample of them.
    pub fn check(self) -> HistoryCheck {
        let count = self.0.iter().map(|shard| lock(shard).sample.calls.len()).sum();
        let mut calls = Vec::with_capacity(count);
        for shard in self.0 {
            let shard = shard.into_inner().unwrap_or_else(PoisonError::into_inner);
            calls.extend(shard.sample.calls);
        }
        HistoryCheck { calls: calls.len() as u64, violation: history::check(&calls).err() }
    }
}

/// A user that panicked fails the run by itself.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use esker_oracle::{Range, Timestamp};

    use super::*;

    fn call(at: u64, index: u64) -> Call {
        let range = Range { first: Timestamp { epoch: 1, index }, count: 1 };
        Call { called: at, returned: at + 1, range }
    }

    #[test]
    fn all_calls_are_checked_until_there_are_too_many() {
        for (most, checked) in [(SHARD_COUNT * 100, 100), (SHARD_COUNT * 30, 25)] {
            let tally = Tally::new(1, most);
            for at in 0..100 {
                tally.answered(3, 0, call(at * 10, at + 1));
            }
            assert_eq!(tally.stage(0).answered(), 100);
            let all = tally.check();
            assert_eq!((all.calls, all.violation), (checked, None));
        }
    }

    #[test]
    fn a_timestamp_that_two_users_got_is_found() {
        let tally = Tally::new(1, 1000);
        tally.answered(1, 0, call(0, 7));
        tally.answered(2, 0, call(10, 7));
        assert!(matches!(tally.check().violation, Some(Violation::Duplicate(..))));
    }

    #[test]
    fn failures_are_counted_by_class_and_stage() {
        let tally = Tally::new(2, 10);
        for (user, stage, class) in [(1, 0, "timeout"), (2, 1, "status 503"), (3, 1, "timeout")] {
            tally.failed(user, stage, class.into());
        }
        tally.answered(4, 1, call(0, 1));
        let seen = tally.stage(1);
        assert_eq!((seen.requests(), seen.failures()), (3, 2));
        assert_eq!(seen.failed.get("status 503"), Some(&1));
    }
}
