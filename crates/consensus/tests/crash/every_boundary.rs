//! Power fails at every operation of a mixed program, before it and in the middle of it; then it
//! goes again, in the life that recovers.
//!
//! Guards: an accept or promise that was answered and is forgotten; a commit that is forgotten or
//! changes its value; a value that was never tried; a floor that falls; a truncation, a checkpoint
//! or a close that a crash leaves half done; and through the second cut, what recovery itself
//! leaves.
//!
//! `ESKER_SEEDS=n` goes through n programs for each mode instead of one or two.
#![allow(clippy::panic)]

use esker_consensus::Mode;
use esker_disk::sim::Persist;
use esker_lab::consensus::{Setup, SimEnv, Stop, program};
use esker_lab::plan::{How, Plan};
use esker_testkit::SplitMix64;

fn seeds(default: u64) -> u64 {
    std::env::var("ESKER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn every_boundary(setup: Setup, seed: u64) {
    let mut rng = SplitMix64::new(seed);
    let steps = program(45, &mut rng);
    let mut sim_env = SimEnv::new(setup, seed);
    if let Err(Stop::Broken(what)) = sim_env.live(&steps).map(drop) {
        panic!("{setup:?} seed {seed}, without any cut: {what}");
    }
    let operations = sim_env.disk.operations();
    assert!(operations > 50);
    const WAYS: [Persist; 3] = [Persist::Nothing, Persist::Everything, Persist::Torn];
    for operation in 0..operations {
        let way = WAYS[(operation % 3) as usize];
        for plan in [
            Plan::before(operation, How::Cut(Persist::Random)),
            Plan::before(operation, How::Cut(way)),
            Plan::during(operation, How::Cut(Persist::Random)),
        ] {
            let mut rng = SplitMix64::new(seed ^ operation << 8);
            let mut sim_env = SimEnv::new(setup, seed);
            let mut run = || {
                sim_env.live_and_die(&steps, plan)?;
                let again = sim_env.disk.operations() + rng.below(30);
                let again = Plan::during(again, How::Cut(Persist::Random));
                let second = program(8, &mut rng);
                sim_env.live_and_die(&second, again)?;
                sim_env.live_and_close(&program(6, &mut rng))
            };
            if let Err(what) = run() {
                panic!("{setup:?} seed {seed} {plan}: {what}");
            }
        }
    }
}

/// Every acknowledged promise, accept and commit is recovered, and nothing that was never tried.
#[test]
fn power_cut_at_every_operation_in_durable_mode() {
    for seed in 0..seeds(2) {
        every_boundary(Setup::new(Mode::Durable, seed % 2 == 1), seed);
    }
}

/// The same but for accepts, which may be forgotten: promises and commits are not.
#[test]
fn power_cut_at_every_operation_in_volatile_mode() {
    for seed in 0..seeds(2) {
        every_boundary(Setup::new(Mode::Volatile, seed % 2 == 1), 1000 + seed);
    }
}

/// Promises, accepts and truncations, which are durable by themselves, are no less so.
#[test]
fn power_cut_at_every_operation_without_sync_on_commit() {
    for seed in 0..seeds(1) {
        for mode in [Mode::Durable, Mode::Volatile] {
            let setup = Setup { sync_on_commit: false, ..Setup::new(mode, seed % 2 == 1) };
            every_boundary(setup, 2000 + seed);
        }
    }
}
