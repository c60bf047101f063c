//! An atomic batch is there as a whole or not at all: smaller than a buffer, larger than one,
//! larger than a segment, with more records than a segment may hold.
//!
//! Guards: a batch that is spread over two commits; and a recovery that cuts or copies half of one.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_testkit::SplitMix64;

use crate::case::{case, is_alone};
use esker_lab::log::config::{Config, SECTORS, policies};
use esker_lab::log::sim_env::SimEnv;
use esker_lab::log::workload::{Step, Then};
use esker_lab::plan::{How, Plan};

fn batches(rng: &mut SplitMix64) -> Vec<Step> {
    let thens = [Then::Wait, Then::Drop, Then::Drop, Then::Keep];
    let mut steps = Vec::new();
    for (records, most) in [(3, 200), (6, 4000), (5, 20_000), (2, 70_000), (4, 9000), (6, 300)] {
        let lens = (0..records).map(|_| rng.index(most)).collect();
        let gap = rng.percent(30).then_some(2);
        steps.push(Step::Batch { lens, atomic: true, gap, then: rng.pick(&thens) });
        steps.push(Step::Append { len: rng.index(300), then: rng.pick(&thens) });
        steps.push(Step::Run);
    }
    steps
}

fn cut_everywhere(test: &'static str, config: Config, seed: u64) -> usize {
    let steps = batches(&mut SplitMix64::new(seed));
    let mut whole = SimEnv::new(config, seed);
    if let Err(stop) = whole.live(&steps) {
        panic!("{config} seed {seed}: {stop:?}");
    }
    let mut lost = 0;
    for operation in 14..whole.disk.operations() + 1 {
        let how = How::any(&mut SplitMix64::new(operation));
        for plan in [Plan::before(operation, how), Plan::during(operation, how)] {
            let name = format!("{config} seed {seed} {plan}");
            let Some(_case) = case(test, &name) else { continue };
            let mut sim_env = SimEnv::new(config, seed);
            let died = sim_env.live_and_die(&steps, plan);
            assert_eq!(died, Ok(()), "{name}");
            match sim_env.open() {
                Ok(life) => lost += usize::from(life.lost.iter().any(|entry| entry.group > 0)),
                Err(stop) => panic!("{name}: {stop:?}"),
            }
        }
    }
    lost
}

#[test]
fn atomic_batch_survives_whole_or_not_at_all() {
    let mut lost = 0;
    for (seed, policy) in (0..).zip(policies()) {
        for sector in SECTORS {
            for segment_records in [None, Some(3)] {
                let config = Config::new(policy).sector(sector).way((seed % 2 == 0, seed > 1));
                let config = Config { segment_records, ..config };
                lost += cut_everywhere(
                    "crash::atomic_batches::atomic_batch_survives_whole_or_not_at_all",
                    config,
                    seed,
                );
            }
        }
    }
    assert!(lost > 50 || is_alone(), "{lost} batches were lost");
}
