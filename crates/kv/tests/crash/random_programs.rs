//! Random programs, against a model, with three crashes each: power cuts and kills at random
//! places.
#![allow(clippy::panic)]

use esker_disk::sim::Persist;
use esker_lab::kv::{POLICIES, SimEnv, program};
use esker_lab::plan::{How, Plan};
use esker_testkit::SplitMix64;

use crate::every_boundary::seeds;

#[test]
fn a_store_is_a_map_through_three_crashes() {
    for seed in 0..seeds(120) {
        let mut rng = SplitMix64::new(seed);
        let policy = POLICIES[(seed % 4) as usize];
        let mut sim_env = SimEnv::new(policy, 5000 + seed);
        sim_env.checks = seed % 3 == 0;
        let mut run = || {
            for _ in 0..3 {
                let steps = program(80, &mut rng);
                let at = sim_env.disk.operations() + rng.below(250);
                let how = if rng.percent(70) { How::Cut(Persist::Random) } else { How::Kill };
                sim_env.live_and_die(&steps, Plan::during(at, how))?;
            }
            sim_env.live_and_close(&program(20, &mut rng))
        };
        if let Err(what) = run() {
            panic!("{policy:?} seed {seed}: {what}");
        }
    }
}
