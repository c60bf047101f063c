//! Random programs on random kinds of logs and disks, cut again and again at random moments; and
//! the same while calls fail.
//!
//! Guards what no directed test covers. A few thousand cuts in a usual run; `ESKER_SOAK=100000`
//! makes it as many as that of each kind, best with `--release`; `ESKER_SEED=n` runs one seed
//! alone.
#![allow(clippy::panic, clippy::print_stdout)] // What tests share fails loudly.

use esker_disk::sim::{Replay, seed_from_env};
use esker_testkit::{SplitMix64, mix, number_from_env};

use esker_lab::log::config::Config;
use esker_lab::log::faults::lives_with_faults;
use esker_lab::log::sim_env::SimEnv;
use esker_lab::log::workload::{Sizes, workload};
use esker_lab::plan::Plan;

/// Cuts in a usual run, of each kind.
const CUTS: u64 = 6000;

const SIZES: [Sizes; 4] = [Sizes::Mixed, Sizes::Moderate, Sizes::Moderate, Sizes::Small];

/// One log through some lives, each of which ends in a cut, and a last one. The answer is the
/// number of cuts.
fn lives(seed: u64) -> Result<u64, String> {
    let mut rng = SplitMix64::new(seed);
    let config = Config::any(&mut rng);
    let sizes = rng.pick(&SIZES);
    let mut sim_env = SimEnv::new(config, seed);
    let cuts = 2 + rng.below(3);
    for n in 0..cuts {
        let steps = 4 + rng.index(24);
        let steps = workload(steps, sizes, &mut rng);
        let span = rng.pick(&[12, 40, 120, 250]);
        let plan = Plan::within(&sim_env.disk, span, &mut rng);
        let config = sim_env.config;
        let reported = |error| format!("{config}, life {n} until {plan}: {error}");
        sim_env.live_and_die(&steps, plan).map_err(reported)?;
        change_options(&mut sim_env, &mut rng);
    }
    let steps = workload(6, sizes, &mut rng);
    let config = sim_env.config;
    sim_env.live_and_close(&steps).map_err(|error| format!("{config}, last life: {error}"))?;
    Ok(cuts)
}

/// A log opens with any options.
fn change_options(sim_env: &mut SimEnv, rng: &mut SplitMix64) {
    if rng.percent(30) {
        let (sector, cache) = (sim_env.config.sector, sim_env.config.cache);
        sim_env.config = Config { sector, cache, ..Config::any(rng) };
    }
}

/// As `lives`, with a fault in most lives.
fn faulty_lives(seed: u64) -> Result<u64, String> {
    let mut rng = SplitMix64::new(mix(seed, 77));
    let mut sim_env = SimEnv::new(Config::any(&mut rng), seed);
    let mut cuts = 0;
    lives_with_faults(&mut sim_env, &mut rng, &mut cuts).map(|()| cuts)
}

fn soak(test: &str, lives: fn(u64) -> Result<u64, String>) {
    let checked = |seed| {
        let _replay = Replay::new(test, seed);
        match lives(seed) {
            Ok(cuts) => cuts,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    };
    if std::env::var_os("ESKER_SEED").is_some() {
        checked(seed_from_env("ESKER_SEED", 0));
        return;
    }
    let wanted = number_from_env("ESKER_SOAK", CUTS);
    let (mut cuts, mut seed) = (0, 0);
    while cuts < wanted {
        cuts += checked(seed);
        seed += 1;
    }
    println!("{test}: {cuts} cuts of {seed} logs");
}

/// After each cut: durable ⊆ recovered ⊆ accepted, without gaps, value by value.
#[test]
fn random_cuts() {
    soak("random_cuts", lives);
}

#[test]
fn random_faults_and_cuts() {
    soak("random_faults_and_cuts", faulty_lives);
}
