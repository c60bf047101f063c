//! Power fails at every operation of a mixed run: before it, and in the middle of it.
//!
//! Guards: a record called durable before it is; a file or a name that was not synced before
//! something depends on it; a torn commit that is taken for a whole one; and, through the second
//! life and the second cut, a dead record of the first that comes back after a new one.
//!
//! `ESKER_SEEDS=n` goes through n programs for each kind of log instead of one.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::sim::{CutPoint, Persist};
use esker_testkit::{SplitMix64, mix, number_from_env};

use crate::case::case;
use esker_lab::log::config::{Config, SEGMENT_BYTES, bytes, policies, segments};
use esker_lab::log::sim_env::SimEnv;
use esker_lab::log::workload::{Sizes, Step, workload};
use esker_lab::plan::{How, Plan};

const OTHERS: [Persist; 3] = [Persist::Nothing, Persist::Everything, Persist::Torn];

/// The first life's program, and how many operations it takes when nothing goes wrong.
fn first_life(config: Config, seed: u64) -> (Vec<Step>, u64) {
    let mut rng = SplitMix64::new(seed);
    let mut steps = workload(22, Sizes::Moderate, &mut rng);
    steps.push(Step::Reopen);
    steps.extend(workload(4, Sizes::Moderate, &mut rng));
    let mut sim_env = SimEnv::new(config, seed);
    if let Err(stop) = sim_env.live(&steps) {
        panic!("{config} seed {seed}, without any cut: {stop:?}");
    }
    (steps, sim_env.disk.operations())
}

/// Cut, recover, write, cut, recover, compare, write, close, compare.
fn two_crashes(config: Config, seed: u64, steps: &[Step], plan: Plan) -> Result<(), String> {
    let mut sim_env = SimEnv::new(config, seed);
    sim_env.live_and_die(steps, plan)?;
    let mut rng = SplitMix64::new(mix(seed, number(plan)));
    let second = workload(8, Sizes::Moderate, &mut rng);
    let next = Plan::within(&sim_env.disk, 40, &mut rng);
    sim_env.live_and_die(&second, next).map_err(|error| format!("after {next}: {error}"))?;
    sim_env.live_and_close(&workload(3, Sizes::Small, &mut rng))
}

fn number(plan: Plan) -> u64 {
    match plan.at {
        CutPoint::Before(n) => n * 3,
        CutPoint::During(n) => n * 3 + 1,
        CutPoint::BeforeRead(n) => n * 3 + 2,
    }
}

/// Each operation is cut once before it and once in the middle of it: one of the two by chance, and
/// the other in one of the other ways, in turn. The configs have different programs, so that each
/// kind of operation is cut in all ways.
fn every_boundary(test: &'static str, config: Config, seed: u64) {
    let (steps, operations) = first_life(config, seed);
    for operation in 0..operations {
        let turn = OTHERS[(operation / 2 % 3) as usize];
        let ways = match operation % 2 {
            0 => [Persist::Random, turn],
            _ => [turn, Persist::Random],
        };
        for plan in
            [Plan::before(operation, How::Cut(ways[0])), Plan::during(operation, How::Cut(ways[1]))]
        {
            let name = format!("{config} seed {seed} {plan}");
            let Some(_case) = case(test, &name) else { continue };
            if let Err(error) = two_crashes(config, seed, &steps, plan) {
                panic!("{name}: {error}");
            }
        }
    }
}

fn every_config(test: &'static str, configs: impl IntoIterator<Item = Config>) {
    let seeds = number_from_env("ESKER_SEEDS", 1);
    for (n, config) in (0..).zip(configs) {
        for seed in n * seeds..(n + 1) * seeds {
            every_boundary(test, config, seed);
        }
    }
}

/// Every durable record is recovered, and of the others a run without gaps; also after a second
/// cut.
#[test]
fn power_cut_at_every_operation_under_every_policy() {
    every_config(
        "crash::every_boundary::power_cut_at_every_operation_under_every_policy",
        Config::every(),
    );
}

/// The same for what the retention has left: what it dropped is the oldest, without gaps.
#[test]
fn power_cut_at_every_operation_while_retention_drops_segments() {
    let configs = policies().into_iter().flat_map(|policy| {
        let config = Config::new(policy).way((false, true));
        let small = Config { segment_records: Some(4), ..config };
        [small.retention(segments(2)), config.retention(bytes(2 * u64::from(SEGMENT_BYTES)))]
    });
    every_config(
        "crash::every_boundary::power_cut_at_every_operation_while_retention_drops_segments",
        configs,
    );
}
