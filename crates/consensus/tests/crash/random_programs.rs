//! Long random programs, and a crash at a random place, over and over, against the model.
//!
//! `ESKER_SEEDS=n` goes through n of them for each mode.
#![allow(clippy::panic)]

use esker_consensus::Mode;
use esker_disk::sim::Persist;
use esker_lab::consensus::{Setup, SimEnv, Stop, program};
use esker_lab::plan::{How, Plan};
use esker_testkit::SplitMix64;

/// Half of them with a small cache, and half of them without a sync for each commit.
fn setup(mode: Mode, seed: u64) -> Setup {
    Setup { sync_on_commit: seed % 4 > 1, ..Setup::new(mode, seed.is_multiple_of(2)) }
}

fn lives(mode: Mode, seed: u64) {
    let mut rng = SplitMix64::new(seed);
    let mut sim_env = SimEnv::new(setup(mode, seed), seed);
    for life in 0..12 {
        let steps = program(60, &mut rng);
        let at = sim_env.disk.operations() + rng.below(200);
        let cut = How::Cut(Persist::Random);
        let before = rng.below(2) == 0;
        let plan = if before { Plan::before(at, cut) } else { Plan::during(at, cut) };
        if let Err(what) = sim_env.live_and_die(&steps, plan) {
            panic!("{mode:?} seed {seed} life {life}: {what}");
        }
    }
    if let Err(what) = sim_env.live_and_close(&program(20, &mut rng)) {
        panic!("{mode:?} seed {seed}, at last: {what}");
    }
}

#[test]
fn random_programs_over_many_crashes() {
    let seeds = std::env::var("ESKER_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..seeds.unwrap_or(60u64) {
        lives(Mode::Durable, seed);
        lives(Mode::Volatile, seed);
    }
}

#[test]
fn one_long_random_program() {
    for seed in 0..10 {
        for mode in [Mode::Durable, Mode::Volatile] {
            let mut rng = SplitMix64::new(seed + 77);
            let mut sim_env = SimEnv::new(setup(mode, seed), seed);
            if let Err(Stop::Broken(what)) = sim_env.live(&program(1500, &mut rng)).map(drop) {
                panic!("{mode:?} seed {seed}: {what}");
            }
        }
    }
}
