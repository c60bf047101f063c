//! The interface of a component that the lab examines.

use esker_disk::sim::SimDisk;
use esker_testkit::SplitMix64;

use crate::plan::Plan;
use crate::setting::Policies;
use crate::survival::Survival;

/// A component on a simulated disk, beside a model of what must be in it.
pub(crate) trait Subject: Sized {
    type Policy: Copy + 'static;
    type Step;
    const POLICIES: Policies<Self::Policy>;

    fn new(policy: Self::Policy, seed: u64) -> Self;
    /// Changes the options before each life but the first.
    fn change_options(&mut self, rng: &mut SplitMix64) {
        let _ = rng;
    }
    fn program(&self, rng: &mut SplitMix64, length: Length) -> Vec<Self::Step>;
    fn disk(&self) -> &SimDisk;
    /// A life without a crash.
    fn live_on(&mut self, steps: &[Self::Step]) -> Result<(), String>;
    fn live_and_die(&mut self, steps: &[Self::Step], plan: Plan) -> Result<(), String>;
    fn live_and_close(&mut self, steps: &[Self::Step]) -> Result<(), String>;
    /// The writes that survived each crash.
    fn survivals(&self) -> &[Survival];
}

/// The number of steps of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Length {
    Long,
    Short,
}
