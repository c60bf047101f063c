//! The log as the lab goes through it.

use std::time::Duration;

use esker_disk::sim::SimDisk;
use esker_log::Policy;
use esker_testkit::SplitMix64;

use super::config::{Config, batch};
use super::sim_env::SimEnv;
use super::workload::{Sizes, Step, Then, workload};
use super::{BATCH_RECORDS, SYNC_PERIOD};
use crate::plan::Plan;
use crate::promise::Promise;
use crate::setting::Policies;
use crate::subject::{Length, Subject};
use crate::survival::Survival;

/// The clock advances.
const TICK: Step = Step::Advance(Duration::from_millis(1));

const SIZES: [Sizes; 3] = [Sizes::Mixed, Sizes::Moderate, Sizes::Small];

impl SimEnv {
    /// Most programs under a policy that commits later do not wait for each record: only then is
    /// there something to lose.
    fn unawaited(&self, mut step: Step, rng: &mut SplitMix64) -> Step {
        let waits = self.config.policy == Policy::Always || rng.percent(10);
        if let Step::Append { then, .. }
        | Step::Numbered { then, .. }
        | Step::Batch { then, .. }
        | Step::Flush { then } = &mut step
            && !waits
        {
            *then = Then::Drop;
        }
        step
    }
}

impl Subject for SimEnv {
    type Policy = Policy;
    type Step = Step;
    const POLICIES: Policies<Policy> = &[
        ("always", Policy::Always, Promise::NoLoss),
        // With a commit in flight, another n - 1 calls may wait for the next one.
        ("batch_5", batch(), Promise::Calls(2 * BATCH_RECORDS - 1)),
        ("periodic_10ms", Policy::Periodic(SYNC_PERIOD), Promise::Age(SYNC_PERIOD)),
        ("os", Policy::OsBuffered, Promise::Nothing),
    ];

    fn new(policy: Policy, seed: u64) -> Self {
        let config = Config::any(&mut SplitMix64::new(seed));
        SimEnv::new(Config { policy, ..config }, seed)
    }

    fn change_options(&mut self, rng: &mut SplitMix64) {
        let Config { policy, sector, cache, .. } = self.config;
        self.config = Config { policy, sector, cache, ..Config::any(rng) };
    }

    fn program(&self, rng: &mut SplitMix64, length: Length) -> Vec<Step> {
        let steps = match length {
            Length::Long => 24,
            Length::Short => 8,
        };
        let sizes = rng.pick(&SIZES);
        let mut program = Vec::new();
        for step in workload(steps, sizes, rng) {
            match step {
                // In small steps, so that the age of a lost record is exact.
                Step::Advance(time) => {
                    let ticks = time.as_millis() as usize;
                    program.extend(std::iter::repeat_n(TICK, ticks));
                }
                step => program.push(self.unawaited(step, rng)),
            }
            if rng.percent(40) {
                program.push(TICK);
            }
        }
        program
    }

    fn disk(&self) -> &SimDisk {
        &self.disk
    }

    fn live_on(&mut self, steps: &[Step]) -> Result<(), String> {
        self.live(steps).map(drop).map_err(|stop| format!("{stop}"))
    }

    fn live_and_die(&mut self, steps: &[Step], plan: Plan) -> Result<(), String> {
        SimEnv::live_and_die(self, steps, plan)
    }

    fn live_and_close(&mut self, steps: &[Step]) -> Result<(), String> {
        SimEnv::live_and_close(self, steps)
    }

    fn survivals(&self) -> &[Survival] {
        &self.survivals
    }
}
