//! Reads and writes that stop short, at sectors or anywhere, are no failure: they are finished.
//!
//! Guards: bytes skipped or written twice at another place when a call is continued; and a cut
//! between two parts of one commit.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault};

use crate::harness::case::case;
use crate::harness::config::Config;
use crate::harness::dice::{Dice, mix};
use crate::harness::plan::Plan;
use crate::harness::workload::{Sizes, workload};
use crate::harness::world::World;

/// Four in ten reads and writes stop short. The mark is left alone: a cut may make its one page
/// unreadable, and then half a page cannot be written there.
fn make_short(world: &World) {
    for op in [Op::Read, Op::Write] {
        for path in [".seg", "manifest"] {
            world.disk.inject(Fault::on(op, Effect::Short(None)).path(path).percent(40));
        }
    }
}

#[test]
fn short_calls_are_finished() {
    for config in Config::every() {
        let mut world = World::new(config, 1);
        make_short(&world);
        let steps = workload(30, Sizes::Moderate, &mut Dice::new(5));
        match world.live_and_close(&steps) {
            Ok(()) => assert!(world.disk.stats().faults > 20),
            Err(error) => panic!("{config}: {error}"),
        }
    }
}

#[test]
fn a_cut_between_the_parts_of_a_write_is_a_cut() {
    for config in Config::every() {
        for seed in 0..12 {
            let mut dice = Dice::new(mix(seed, 3));
            let mut world = World::new(config, seed);
            make_short(&world);
            for n in 0..2 {
                let steps = workload(12, Sizes::Moderate, &mut dice);
                let plan = Plan::within(&world.disk, 150, &mut dice);
                let name = format!("{config} seed {seed}, life {n} until {plan}");
                let test = "faults::short_calls::a_cut_between_the_parts_of_a_write_is_a_cut";
                let _case = case(test, &name);
                if let Err(error) = world.live_and_die(&steps, plan) {
                    panic!("{name}: {error}");
                }
            }
            assert_eq!(world.live_and_close(&[]), Ok(()), "{config} seed {seed}");
        }
    }
}
