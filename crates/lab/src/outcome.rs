//! The outcome of the runs of a setting.

use esker_testkit::caught;

use crate::promise::Promise;
use crate::survival::{Statistics, Survival};

/// Violations that are kept; all are counted.
const EXAMPLES_MAX: usize = 20;
/// Crashes that are kept; all are in the statistics.
const CRASHES_KEPT: usize = 300;

/// A run that broke a promise, or that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// The broken promise, or the failure.
    pub what: String,
}

/// The outcome of a setting.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// All runs, those with violations too.
    pub statistics: Statistics,
    /// The number of runs that broke a promise, or failed.
    pub violations: u64,
    /// The first of these, at most 20.
    pub examples: Vec<Violation>,
    /// The writes that survived each crash, with the seed of its run: the first 300 of them.
    pub crashes: Vec<(u64, Survival)>,
}

impl Outcome {
    pub(crate) fn add(&mut self, run: &Run, promise: Promise) {
        self.statistics.runs += 1;
        self.statistics.cuts += run.cuts;
        for survival in &run.survivals {
            self.statistics.add(survival, promise);
            if self.crashes.len() < CRASHES_KEPT {
                self.crashes.push((run.seed, *survival));
            }
        }
        let Err(what) = &run.outcome else { return };
        self.violations += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(Violation { seed: run.seed, what: what.clone() });
        }
    }

    /// Adds other runs. The examples kept are those of the first seeds, counted from `first_seed`.
    pub(crate) fn merge(&mut self, other: Outcome, first_seed: u64) {
        self.statistics.merge(&other.statistics);
        self.violations += other.violations;
        self.examples.extend(other.examples);
        self.examples.sort_by_key(|example| example.seed.wrapping_sub(first_seed));
        self.examples.truncate(EXAMPLES_MAX);
        self.crashes.extend(other.crashes);
        self.crashes.sort_by_key(|(seed, _)| seed.wrapping_sub(first_seed));
        self.crashes.truncate(CRASHES_KEPT);
    }
}

/// A run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) cuts: u64,
    pub(crate) survivals: Vec<Survival>,
    pub(crate) outcome: Result<(), String>,
}

impl Run {
    /// Goes through these lives. A panic is a failure.
    pub(crate) fn catch(seed: u64, lives: impl FnOnce(&mut Run) -> Result<(), String>) -> Run {
        let mut run = Run { seed, cuts: 0, survivals: Vec::new(), outcome: Ok(()) };
        let outcome = caught(|| lives(&mut run));
        run.outcome = outcome;
        run
    }
}
