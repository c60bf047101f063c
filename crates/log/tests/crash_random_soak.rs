//! Random programs on random kinds of logs and disks, cut again and again at random moments.
//!
//! Guards what nobody thought of. A few thousand seeds in a usual run; `ESKER_SOAK=100000` makes it
//! as many cuts as that, best with `--release`; `ESKER_SEED=n` runs one seed alone.

mod harness;

use esker_disk::sim::{Replay, seed_from_env};
use harness::case::number_from_env;
use harness::config::Config;
use harness::dice::Dice;
use harness::plan::Plan;
use harness::workload::{Sizes, workload};
use harness::world::World;

/// Cuts in a usual run.
const CUTS: u64 = 4000;

/// One log through some lives, each of which ends in a cut, and a last one. The answer is the
/// number of cuts.
fn lives(seed: u64) -> Result<u64, String> {
    let mut dice = Dice::new(seed);
    let config = Config::any(&mut dice);
    let sizes = dice.pick(&[Sizes::Mixed, Sizes::Moderate, Sizes::Moderate, Sizes::Small]);
    let mut world = World::new(config, seed);
    let cuts = 2 + dice.below(3);
    for n in 0..cuts {
        let steps = 4 + dice.index(24);
        let steps = workload(steps, sizes, &mut dice);
        let span = dice.pick(&[12, 40, 120, 250]);
        let plan = Plan::within(&world.disk, span, &mut dice);
        let told = |error| format!("{config}, life {n} until {plan}: {error}");
        world.live_and_die(&steps, plan).map_err(told)?;
    }
    let steps = workload(6, sizes, &mut dice);
    world.live_and_close(&steps).map_err(|error| format!("{config}, last life: {error}"))?;
    Ok(cuts)
}

fn checked(seed: u64) -> u64 {
    let _replay = Replay::new("random_cuts", seed);
    match lives(seed) {
        Ok(cuts) => cuts,
        Err(error) => panic!("seed {seed}: {error}"),
    }
}

#[test]
fn random_cuts() {
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
    println!("{cuts} cuts of {seed} logs");
}
