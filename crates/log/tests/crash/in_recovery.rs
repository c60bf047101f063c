//! Power fails while the log recovers from a crash: at every operation of it, and again.
//!
//! Guards the order of what recovery does: the session raised before anything else, the copy of the
//! tail durable before its name, its name before the old tail goes, the floor before the files. And
//! that a recovery that was cut short promised nothing and lost nothing.
//!
//! `ESKER_SEEDS=n` goes through n programs for each kind of log, and leaves out no operation.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::sim::Persist;
use esker_testkit::{SplitMix64, mix, number_from_env};

use crate::case::case;
use esker_lab::log::config::{Config, SECTORS, bytes, policies, segments};
use esker_lab::log::sim_env::SimEnv;
use esker_lab::log::workload::{Sizes, Step, Then, workload};
use esker_lab::plan::{How, Plan};

const HOWS: [How; 4] = [
    How::Cut(Persist::Random),
    How::Cut(Persist::Nothing),
    How::Cut(Persist::Everything),
    How::Kill,
];

/// A run that leaves its log at each of its operations: with segments turning, truncation and,
/// where the config says so, retention.
fn program(rng: &mut SplitMix64) -> Vec<Step> {
    let mut steps = workload(7, Sizes::Moderate, rng);
    let large = |then| Step::Append { len: 19_000, then };
    steps.extend([large(Then::Drop), large(Then::Drop), Step::Run, large(Then::Wait)]);
    steps.push(Step::Truncate { percent: 60 });
    steps.extend([large(Then::Drop), large(Then::Wait), large(Then::Drop), Step::Run]);
    steps.extend(workload(3, Sizes::Small, rng));
    steps
}

/// The operations that opening takes.
fn operations_of_opening(sim_env: &SimEnv) -> Result<u64, String> {
    let mut sim_env = sim_env.fork(1);
    let before = sim_env.disk.operations();
    sim_env.open().map_err(|stop| format!("without a cut: {stop:?}"))?;
    Ok(sim_env.disk.operations() - before)
}

/// A cut at every operation of the recovery of this world, then, by chance, inside the next
/// recovery; then a life, a cut, and the last one.
fn recover_under_cuts(sim_env: &SimEnv, rng: &mut SplitMix64) -> Result<u64, String> {
    let mut cuts = 0;
    for operation in 0..operations_of_opening(sim_env)? {
        for during in [false, true] {
            let mut sim_env = sim_env.fork(rng.next());
            let how = HOWS[(operation as usize + rng.index(HOWS.len())) % HOWS.len()];
            let at = sim_env.disk.operations() + operation;
            let plan = if during { Plan::during(at, how) } else { Plan::before(at, how) };
            sim_env.live_and_die(&[], plan).map_err(|error| format!("first {plan}: {error}"))?;
            let mut reported = format!("after {plan}");
            for _ in 0..rng.below(3) {
                let next = Plan::within(&sim_env.disk, 24, rng);
                reported = format!("{reported}, {next}");
                sim_env.live_and_die(&[], next).map_err(|error| format!("{reported}: {error}"))?;
                cuts += 1;
            }
            let life = workload(5, Sizes::Moderate, rng);
            let last = Plan::within(&sim_env.disk, 40, rng);
            sim_env
                .live_and_die(&life, last)
                .map_err(|error| format!("{reported}, {last}: {error}"))?;
            sim_env.live_and_close(&[]).map_err(|error| format!("{reported}, {last}: {error}"))?;
            cuts += 2;
        }
    }
    Ok(cuts)
}

/// Every operation of a run ends it, or every `apart`th in a short test, and every operation of the
/// recovery ends that.
fn everywhere(test: &'static str, config: Config, seed: u64, apart: usize) {
    let thorough = std::env::var_os("ESKER_SEEDS").is_some();
    let apart = if thorough { 1 } else { apart };
    for n in 0..number_from_env("ESKER_SEEDS", 1) {
        every_recovery(test, config, seed + 100 * n, apart);
    }
}

fn every_recovery(test: &'static str, config: Config, seed: u64, apart: usize) {
    let mut rng = SplitMix64::new(seed);
    let steps = program(&mut rng);
    let mut sim_env = SimEnv::new(config, seed);
    if let Err(stop) = sim_env.live(&steps) {
        panic!("{config} seed {seed}, without any cut: {stop:?}");
    }
    let first = 12 + seed % apart as u64;
    for operation in (first..sim_env.disk.operations()).step_by(apart) {
        let how = HOWS[(operation % 4) as usize];
        let plan = Plan::during(operation, how);
        let name = format!("{config} seed {seed} {plan}");
        let Some(_case) = case(test, &name) else { continue };
        let mut rng = SplitMix64::new(mix(seed, operation));
        let mut sim_env = SimEnv::new(config, seed);
        let done = sim_env.live_and_die(&steps, plan);
        if let Err(error) = done.and_then(|()| recover_under_cuts(&sim_env, &mut rng)) {
            panic!("{name}, {error}");
        }
    }
}

/// The next recovery finds every durable record, those that the cut one reported as durable
/// included.
#[test]
fn power_cut_in_recovery_under_every_policy() {
    for (n, policy) in (0..).zip(policies()) {
        for sector in SECTORS {
            for way in [(true, true), (false, false)] {
                let config = Config::new(policy).sector(sector).way(way);
                everywhere(
                    "crash::in_recovery::power_cut_in_recovery_under_every_policy",
                    config,
                    n,
                    11,
                );
            }
        }
    }
}

#[test]
fn power_cut_in_recovery_while_retention_drops_segments() {
    for (n, policy) in (10..).zip(policies()) {
        for retention in [segments(2), bytes(128 << 10)] {
            let config = Config::new(policy).retention(retention).way((true, false));
            everywhere(
                "crash::in_recovery::power_cut_in_recovery_while_retention_drops_segments",
                config,
                n,
                9,
            );
        }
    }
}
