//! Random programs on random kinds of logs and disks, cut again and again at random moments; and the
//! same while calls fail.
//!
//! Guards what nobody thought of. A few thousand cuts in a usual run; `ESKER_SOAK=100000` makes it
//! as many as that of each kind, best with `--release`; `ESKER_SEED=n` runs one seed alone.
#![allow(clippy::panic, clippy::print_stdout)] // What tests share fails and tells loudly.

use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Replay, seed_from_env};
use esker_log::Error;

use crate::harness::case::number_from_env;
use crate::harness::config::Config;
use crate::harness::dice::{Dice, mix};
use crate::harness::faults::OPS;
use crate::harness::plan::Plan;
use crate::harness::workload::{Sizes, workload};
use crate::harness::world::{Stop, World};

/// Cuts in a usual run, of each kind.
const CUTS: u64 = 6000;

const SIZES: [Sizes; 4] = [Sizes::Mixed, Sizes::Moderate, Sizes::Moderate, Sizes::Small];

/// One log through some lives, each of which ends in a cut, and a last one. The answer is the
/// number of cuts.
fn lives(seed: u64) -> Result<u64, String> {
    let mut dice = Dice::new(seed);
    let config = Config::any(&mut dice);
    let sizes = dice.pick(&SIZES);
    let mut world = World::new(config, seed);
    let cuts = 2 + dice.below(3);
    for n in 0..cuts {
        let steps = 4 + dice.index(24);
        let steps = workload(steps, sizes, &mut dice);
        let span = dice.pick(&[12, 40, 120, 250]);
        let plan = Plan::within(&world.disk, span, &mut dice);
        let config = world.config;
        let told = |error| format!("{config}, life {n} until {plan}: {error}");
        world.live_and_die(&steps, plan).map_err(told)?;
        change_options(&mut world, &mut dice);
    }
    let steps = workload(6, sizes, &mut dice);
    let config = world.config;
    world.live_and_close(&steps).map_err(|error| format!("{config}, last life: {error}"))?;
    Ok(cuts)
}

/// A log opens with any options.
fn change_options(world: &mut World, dice: &mut Dice) {
    if dice.percent(30) {
        let (sector, cache) = (world.config.sector, world.config.cache);
        world.config = Config { sector, cache, ..Config::any(dice) };
    }
}

/// As `lives`, with a fault in most lives, once or for some time.
fn lives_with_faults(seed: u64) -> Result<u64, String> {
    let mut dice = Dice::new(mix(seed, 77));
    let mut world = World::new(Config::any(&mut dice), seed);
    let sizes = dice.pick(&SIZES);
    let cuts = 2 + dice.below(4);
    for n in 0..cuts {
        let steps = 4 + dice.index(16);
        let steps = workload(steps, sizes, &mut dice);
        let span = dice.pick(&[12, 40, 120, 250]);
        let plan = Plan::within(&world.disk, span, &mut dice);
        let (op, fault) = any_fault(&mut dice);
        let name = format!("{}, life {n} until {plan}, {fault:?}", world.config);
        world.disk.inject(fault);
        plan.arm(&world.disk);
        let lived = world.live(&steps);
        world.disk.cancel_cut();
        world.disk.clear_faults();
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
        plan.how.strike(&world.disk);
        drop(life);
        world.disk.power_on();
        world.model.lose_cache();
        change_options(&mut world, &mut dice);
    }
    let config = world.config;
    world.live_and_close(&[]).map_err(|error| format!("{config}, last life: {error}"))?;
    Ok(cuts)
}

fn any_fault(dice: &mut Dice) -> (Op, Fault) {
    let op = dice.pick(&OPS);
    let effect = match dice.below(6) {
        0 | 1 => Effect::Io,
        2 => Effect::NoSpace,
        3 | 4 => Effect::Short(None),
        _ => Effect::Slow(Duration::from_millis(5)),
    };
    let fault = Fault::on(op, effect).after(dice.below(60));
    let fault = match dice.below(3) {
        // Recovery tries a block twice; when that fails it may be the one that the cut tore, and
        // what no claim stands behind goes with it.
        _ if op == Op::Read => fault.times(1),
        0 => fault.times(1),
        1 => fault.times(1 + dice.below(5)),
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

#[test]
fn random_cuts() {
    soak("random_cuts", lives);
}

#[test]
fn random_faults_and_cuts() {
    soak("random_faults_and_cuts", lives_with_faults);
}
