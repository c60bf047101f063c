//! Reads and writes that stop short, at sectors or anywhere, are no failure: they are finished.
//!
//! Guards: bytes skipped or written twice at another place when a call is continued; and a cut
//! between two parts of one commit.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault};
use esker_testkit::{SplitMix64, mix};

use crate::case::case;
use esker_lab::log::config::Config;
use esker_lab::log::sim_env::SimEnv;
use esker_lab::log::workload::{Sizes, workload};
use esker_lab::plan::Plan;

/// Four in ten reads and writes stop short. The mark is left alone: a cut may make its one page
/// unreadable, and then half a page cannot be written there.
fn make_short(sim_env: &SimEnv) {
    for op in [Op::Read, Op::Write] {
        for path in [".seg", "manifest"] {
            sim_env.disk.inject(Fault::on(op, Effect::Short(None)).path(path).percent(40));
        }
    }
}

#[test]
fn short_calls_are_finished() {
    for config in Config::every() {
        let mut sim_env = SimEnv::new(config, 1);
        make_short(&sim_env);
        let steps = workload(30, Sizes::Moderate, &mut SplitMix64::new(5));
        match sim_env.live_and_close(&steps) {
            Ok(()) => assert!(sim_env.disk.stats().faults > 20),
            Err(error) => panic!("{config}: {error}"),
        }
    }
}

#[test]
fn a_cut_between_the_parts_of_a_write_is_a_cut() {
    for config in Config::every() {
        for seed in 0..12 {
            let mut rng = SplitMix64::new(mix(seed, 3));
            let mut sim_env = SimEnv::new(config, seed);
            make_short(&sim_env);
            for n in 0..2 {
                let steps = workload(12, Sizes::Moderate, &mut rng);
                let plan = Plan::within(&sim_env.disk, 150, &mut rng);
                let name = format!("{config} seed {seed}, life {n} until {plan}");
                let test = "faults::short_calls::a_cut_between_the_parts_of_a_write_is_a_cut";
                let _case = case(test, &name);
                if let Err(error) = sim_env.live_and_die(&steps, plan) {
                    panic!("{name}: {error}");
                }
            }
            assert_eq!(sim_env.live_and_close(&[]), Ok(()), "{config} seed {seed}");
        }
    }
}
