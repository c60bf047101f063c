//! The power goes at every operation of a mixed run: before it, and in the middle of it.
//!
//! Guards: a record called durable before it is; a file or a name that was not synced before
//! something depends on it; a torn commit that is taken for a whole one; and, through the second
//! life and the second cut, a dead record of the first that comes back behind a new one.

mod harness;

use esker_disk::sim::{CutPoint, Persist};
use harness::case::case;
use harness::config::Config;
use harness::dice::{Dice, mix};
use harness::plan::{How, PERSISTS, Plan};
use harness::workload::{Sizes, Step, workload};
use harness::world::World;

const TEST: &str = "crash_every_boundary::every_boundary";

/// The first life's program, and how many operations it takes when nothing goes wrong.
fn first_life(config: Config, seed: u64) -> (Vec<Step>, u64) {
    let mut dice = Dice::new(seed);
    let mut steps = workload(26, Sizes::Moderate, &mut dice);
    steps.push(Step::Reopen);
    steps.extend(workload(4, Sizes::Moderate, &mut dice));
    let mut world = World::new(config, seed);
    let life = world.live(&steps);
    if let Err(stop) = &life {
        panic!("without any cut: {stop:?}");
    }
    (steps, world.disk.operations())
}

/// Cut, recover, write, cut, recover, compare, write, close, compare.
fn two_crashes(config: Config, seed: u64, steps: &[Step], plan: Plan) -> Result<(), String> {
    let mut world = World::new(config, seed);
    world.live_and_die(steps, plan)?;
    let mut dice = Dice::new(mix(seed, plan_number(plan)));
    let second = workload(8, Sizes::Moderate, &mut dice);
    let next = Plan::within(&world.disk, 40, &mut dice);
    world.live_and_die(&second, next).map_err(|error| format!("after {next}: {error}"))?;
    world.live_and_close(&workload(3, Sizes::Small, &mut dice))
}

fn plan_number(plan: Plan) -> u64 {
    match plan.at {
        CutPoint::Before(n) => n * 3,
        CutPoint::During(n) => n * 3 + 1,
        CutPoint::BeforeRead(n) => n * 3 + 2,
    }
}

fn every_boundary(config: Config, seed: u64, persists: &[Persist]) -> u64 {
    let (steps, operations) = first_life(config, seed);
    let mut cuts = 0;
    for number in 0..operations {
        for persist in persists {
            let how = How::Cut(*persist);
            for plan in [Plan::before(number, how), Plan::during(number, how)] {
                let name = format!("{config} seed {seed} {plan}");
                let Some(_case) = case(TEST, &name) else { continue };
                if let Err(error) = two_crashes(config, seed, &steps, plan) {
                    panic!("{name}: {error}");
                }
                cuts += 1;
            }
        }
    }
    cuts
}

#[test]
fn probe() {
    for config in Config::every() {
        let t = std::time::Instant::now();
        let cuts = every_boundary(config, 1, &PERSISTS);
        println!("{config}: {cuts} {:?}", t.elapsed());
    }
}
