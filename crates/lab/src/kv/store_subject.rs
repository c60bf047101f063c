//! The store as the lab goes through it.

use esker_disk::sim::SimDisk;
use esker_kv::Policy;
use esker_testkit::SplitMix64;

use super::SimEnv;
use super::store_program::{BATCH_RECORDS, POLICIES, SYNC_PERIOD, Step, program};
use crate::plan::Plan;
use crate::promise::Promise;
use crate::setting::Policies;
use crate::subject::{Length, Subject};
use crate::survival::Survival;

impl Subject for SimEnv {
    type Policy = Policy;
    type Step = Step;
    const POLICIES: Policies<Policy> = &[
        ("always", POLICIES[0], Promise::NoLoss),
        // With a commit in flight, another n - 1 calls may wait for the next one.
        ("batch_5", POLICIES[1], Promise::Calls(2 * BATCH_RECORDS - 1)),
        ("periodic_10ms", POLICIES[2], Promise::Age(SYNC_PERIOD)),
        ("os", POLICIES[3], Promise::Nothing),
    ];

    fn new(policy: Policy, seed: u64) -> Self {
        SimEnv::new(policy, seed)
    }

    fn program(&self, rng: &mut SplitMix64, length: Length) -> Vec<Step> {
        let steps = match length {
            Length::Long => 40,
            Length::Short => 10,
        };
        let mut ticking = Vec::new();
        for step in program(steps, rng) {
            ticking.push(step);
            if rng.percent(40) {
                ticking.push(Step::Advance(1));
            }
        }
        ticking
    }

    fn disk(&self) -> &SimDisk {
        &self.disk
    }

    fn live_on(&mut self, steps: &[Step]) -> Result<(), String> {
        SimEnv::live_on(self, steps)
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
