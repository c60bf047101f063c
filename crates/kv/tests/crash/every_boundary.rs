//! Power fails at every operation of a mixed program, before it and in the middle of it; then it
//! fails again, while the store recovers and after that.
//!
//! `ESKER_SEEDS=n` runs n programs for each policy instead of one.
#![allow(clippy::panic)]

use esker_disk::sim::Persist;
use esker_kv::Policy;
use esker_lab::kv::{POLICIES, SimEnv, program};
use esker_lab::plan::{How, Plan};
use esker_testkit::SplitMix64;

pub fn seeds(default: u64) -> u64 {
    std::env::var("ESKER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn every_boundary(policy: Policy, seed: u64) {
    let mut rng = SplitMix64::new(seed);
    let steps = program(60, &mut rng);
    let mut sim_env = SimEnv::new(policy, seed);
    sim_env.checks = true;
    if let Err(what) = sim_env.live_on(&steps) {
        panic!("{policy:?} seed {seed}, without any cut: {what}");
    }
    let mut sim_env = SimEnv::new(policy, seed);
    sim_env.live_on(&steps).unwrap_or_default();
    let operations = sim_env.disk.operations();
    assert!(operations > 40, "{operations} operations");
    const WAYS: [Persist; 3] = [Persist::Nothing, Persist::Everything, Persist::Torn];
    for operation in 0..operations {
        let way = WAYS[(operation % 3) as usize];
        for plan in [
            Plan::before(operation, How::Cut(way)),
            Plan::during(operation, How::Cut(Persist::Random)),
        ] {
            let mut rng = SplitMix64::new(seed ^ operation << 8);
            let mut sim_env = SimEnv::new(policy, seed);
            let mut run = || {
                sim_env.live_and_die(&steps, plan)?;
                let again = sim_env.disk.operations() + rng.below(30);
                let again = Plan::during(again, How::Cut(Persist::Random));
                let second = program(12, &mut rng);
                sim_env.live_and_die(&second, again)?;
                sim_env.live_and_close(&program(8, &mut rng))
            };
            if let Err(what) = run() {
                panic!("{policy:?} seed {seed} {plan}: {what}");
            }
        }
    }
}

/// The recovered writes are a prefix of the accepted ones and have every durable one, with equal
/// values.
#[test]
fn power_cut_at_every_operation_under_always() {
    (0..seeds(1)).for_each(|seed| every_boundary(POLICIES[0], seed));
}

#[test]
fn power_cut_at_every_operation_under_batch() {
    (0..seeds(1)).for_each(|seed| every_boundary(POLICIES[1], 100 + seed));
}

#[test]
fn power_cut_at_every_operation_under_periodic() {
    (0..seeds(1)).for_each(|seed| every_boundary(POLICIES[2], 200 + seed));
}

#[test]
fn power_cut_at_every_operation_under_os_buffered() {
    (0..seeds(1)).for_each(|seed| every_boundary(POLICIES[3], 300 + seed));
}
