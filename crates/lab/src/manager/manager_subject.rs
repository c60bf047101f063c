//! The manager as the lab goes through it.

use esker_consensus::Mode;
use esker_disk::sim::SimDisk;
use esker_testkit::SplitMix64;

use super::manager_program::{Step, program};
use super::{Setup, SimEnv};
use crate::plan::Plan;
use crate::promise::Promise;
use crate::setting::Policies;
use crate::subject::{Length, Subject};
use crate::survival::Survival;

const fn setup(mode: Mode) -> Setup {
    Setup { mode, sync_on_commit: true, small: false }
}

impl Subject for SimEnv {
    type Policy = Setup;
    type Step = Step;
    const POLICIES: Policies<Setup> = &[
        ("durable", setup(Mode::Durable), Promise::NoLoss),
        ("volatile", setup(Mode::Volatile), Promise::Nothing),
    ];

    fn new(setup: Setup, seed: u64) -> Self {
        SimEnv::new(Setup { small: seed % 2 == 1, ..setup }, seed)
    }

    fn program(&self, rng: &mut SplitMix64, length: Length) -> Vec<Step> {
        let steps = match length {
            Length::Long => 30,
            Length::Short => 8,
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
