//! Each component under each of its policies.

use crate::outcome::{Outcome, Run};
use crate::power::{self, Options};
use crate::promise::Promise;
use crate::subject::Subject;
use crate::{consensus, kv, log::sim_env};

/// A component under one of its policies.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// `log`, `consensus` or `kv`.
    pub component: &'static str,
    /// The name of the policy.
    pub policy: &'static str,
    /// What the policy promises.
    pub promise: Promise,
    /// The place of the policy in the component's list.
    index: usize,
    runs_of: fn(usize, &[u64]) -> Vec<Run>,
}

impl Setting {
    /// Cuts the power under the component, on all processors. The outcome depends on the options
    /// alone. `progress` gets the number of further runs that are done.
    pub fn power(&self, options: Options, progress: &(dyn Fn(u64) + Sync)) -> Outcome {
        let runs_of = |seeds: &[u64]| (self.runs_of)(self.index, seeds);
        power::go_through(options, self.promise, &runs_of, progress)
    }
}

/// Returns every component under each of its policies.
pub fn settings() -> Vec<Setting> {
    let mut all = Vec::new();
    all.extend(of::<sim_env::SimEnv>("log"));
    all.extend(of::<consensus::SimEnv>("consensus"));
    all.extend(of::<kv::SimEnv>("kv"));
    all
}

fn of<S: Subject>(component: &'static str) -> impl Iterator<Item = Setting> {
    let runs_of = power::runs_of::<S>;
    let policies = S::POLICIES.iter().enumerate();
    policies.map(move |(index, (policy, _, promise))| Setting {
        component,
        policy,
        promise: *promise,
        index,
        runs_of,
    })
}
