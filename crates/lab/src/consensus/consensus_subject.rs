//! The consensus log as the lab goes through it.

use esker_consensus::Mode;
use esker_disk::sim::SimDisk;
use esker_testkit::SplitMix64;

use super::{Setup, SimEnv, Step, program};
use crate::plan::Plan;
use crate::promise::Promise;
use crate::setting::Policies;
use crate::subject::{Length, Subject};
use crate::survival::Survival;

const fn setup(mode: Mode, sync_on_commit: bool) -> Setup {
    Setup { mode, sync_on_commit, small: false }
}

impl Subject for SimEnv {
    type Policy = Setup;
    type Step = Step;
    const POLICIES: Policies<Setup> = &[
        ("durable", setup(Mode::Durable, true), Promise::NoLoss),
        ("durable_unsynced_commits", setup(Mode::Durable, false), Promise::NoLoss),
        ("volatile", setup(Mode::Volatile, true), Promise::Nothing),
        ("volatile_unsynced_commits", setup(Mode::Volatile, false), Promise::Nothing),
    ];

    fn new(setup: Setup, seed: u64) -> Self {
        // A small cache and a value budget that is full now and then, in half of the programs.
        SimEnv::new(Setup { small: seed % 2 == 1, ..setup }, seed)
    }

    fn program(&self, rng: &mut SplitMix64, length: Length) -> Vec<Step> {
        let steps = match length {
            Length::Long => 40,
            Length::Short => 10,
        };
        program(steps, rng)
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
