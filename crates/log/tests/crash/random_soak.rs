//! Random programs on random kinds of logs and disks, cut again and again at random moments; and
//! the same while calls fail.
//!
//! Guards what no directed test covers. A few thousand cuts in a usual run; `ESKER_SOAK=100000`
//! makes it as many as that of each kind, best with `--release`; `ESKER_SEED=n` runs one seed
//! alone.
#![allow(clippy::panic, clippy::print_stdout)] // What tests share fails loudly.

use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Replay, seed_from_env};
use esker_log::Error;
use esker_testkit::{SplitMix64, mix, number_from_env};

use esker_lab::log::config::Config;
use esker_lab::log::faults::OPS;
use esker_lab::log::sim_env::{SimEnv, Stop};
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

/// As `lives`, with a fault in most lives, once or for some time.
fn lives_with_faults(seed: u64) -> Result<u64, String> {
    let mut rng = SplitMix64::new(mix(seed, 77));
    let mut sim_env = SimEnv::new(Config::any(&mut rng), seed);
    let sizes = rng.pick(&SIZES);
    let cuts = 2 + rng.below(4);
    for n in 0..cuts {
        let steps = 4 + rng.index(16);
        let steps = workload(steps, sizes, &mut rng);
        let span = rng.pick(&[12, 40, 120, 250]);
        let plan = Plan::within(&sim_env.disk, span, &mut rng);
        let (op, fault) = any_fault(&mut rng);
        let name = format!("{}, life {n} until {plan}, {fault:?}", sim_env.config);
        sim_env.disk.inject(fault);
        plan.arm(&sim_env.disk);
        let lived = sim_env.live(&steps);
        sim_env.disk.cancel_cut();
        sim_env.disk.clear_faults();
        let (life, error) = match lived {
            Ok(life) => (Some(life), None),
            Err(Stop::Ended) => (None, None),
            Err(Stop::Failed(error)) => (None, Some(error)),
            Err(Stop::Broken(what)) => return Err(format!("{name}: {what}")),
        };
        match error {
            None | Some(Error::Io(_) | Error::Poisoned(_) | Error::NoSpace { .. }) => {}
            Some(Error::Corrupted(damage)) if op == Op::Read && damage.what.contains("read") => {}
            Some(error) => return Err(format!("{name}: {error:?}")),
        }
        plan.how.strike(&sim_env.disk);
        drop(life);
        sim_env.disk.power_on();
        sim_env.model.lose_cache();
        change_options(&mut sim_env, &mut rng);
    }
    let config = sim_env.config;
    sim_env.live_and_close(&[]).map_err(|error| format!("{config}, last life: {error}"))?;
    Ok(cuts)
}

fn any_fault(rng: &mut SplitMix64) -> (Op, Fault) {
    let op = rng.pick(&OPS);
    let effect = match rng.below(6) {
        0 | 1 => Effect::Io,
        2 => Effect::NoSpace,
        3 | 4 => Effect::Short(None),
        _ => Effect::Slow(Duration::from_millis(5)),
    };
    let fault = Fault::on(op, effect).after(rng.below(60));
    let fault = match rng.below(3) {
        // Recovery tries a block twice; when that fails it may be the one that the cut tore, and
        // what no claim follows goes with it.
        _ if op == Op::Read => fault.times(1),
        0 => fault.times(1),
        1 => fault.times(1 + rng.below(5)),
        _ => fault.percent(10),
    };
    (op, fault)
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

/// Requirements: WB-13.
#[test]
fn random_cuts() {
    soak("random_cuts", lives);
}

#[test]
fn random_faults_and_cuts() {
    soak("random_faults_and_cuts", lives_with_faults);
}
