//! Power cuts: the shipped components over the simulated disk, cut before its operations, in the
//! middle of them, and in recovery.

pub(crate) mod runs;

use crate::outcome::{Outcome, Run};
use crate::setting::{Setting, settings};
use crate::subject::Subject;
use crate::{consensus, kv, log::sim_env};
pub use runs::Options;

/// Power cuts under one setting.
#[derive(Debug, Clone, Copy)]
pub struct PowerCuts {
    /// The component and its policy.
    pub setting: Setting,
    runs_of: fn(usize, &[u64]) -> Vec<Run>,
}

impl PowerCuts {
    /// Goes through the runs, on all processors. The outcome depends on the options alone.
    /// `progress` gets the number of further runs that are done.
    pub fn run(&self, options: Options, progress: &(dyn Fn(u64) + Sync)) -> Outcome {
        let runs_of = |seeds: &[u64]| (self.runs_of)(self.setting.index, seeds);
        runs::go_through(options, self.setting.promise, &runs_of, progress)
    }
}

/// Returns the power cuts of every component under each of its policies.
pub fn power_cuts() -> Vec<PowerCuts> {
    let mut all = Vec::new();
    all.extend(of::<sim_env::SimEnv>("log"));
    all.extend(of::<consensus::SimEnv>("consensus"));
    all.extend(of::<kv::SimEnv>("kv"));
    all
}

fn of<S: Subject>(component: &'static str) -> impl Iterator<Item = PowerCuts> {
    let runs_of = runs::runs_of::<S>;
    settings(component, S::POLICIES).map(move |setting| PowerCuts { setting, runs_of })
}
