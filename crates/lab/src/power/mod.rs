//! Power cuts: the shipped components over the simulated disk, cut before its operations, in the
//! middle of them, and in recovery.

pub(crate) mod runs;

use crate::setting::settings;
use crate::simulation::Simulation;
use crate::subject::Subject;
use crate::{consensus, kv, log::sim_env, manager};

/// Returns the power cuts of every component under each of its policies. A run has 3 cuts.
pub fn power_cuts() -> Vec<Simulation> {
    let mut all = Vec::new();
    all.extend(simulations_of::<sim_env::SimEnv>("log"));
    all.extend(simulations_of::<consensus::SimEnv>("consensus"));
    all.extend(simulations_of::<manager::SimEnv>("manager"));
    all.extend(simulations_of::<kv::SimEnv>("kv"));
    all
}

fn simulations_of<S: Subject>(component: &'static str) -> impl Iterator<Item = Simulation> {
    let runs_of = runs::runs_of::<S>;
    settings("power", component, S::POLICIES).map(move |setting| Simulation { setting, runs_of })
}
