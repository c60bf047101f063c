//! A read gives another block, or a bit of it has rotted: while the log lives, and while it opens.
//!
//! Guards: bytes handed to a reader that were never appended, and durable records that recovery
//! cuts off because it misread them. The processes end by a kill or a close, which leave the claims
//! in place: nothing may be lost silently.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault};
use esker_log::{Error, OpenCheck, Policy};
use esker_testkit::SplitMix64;

use crate::case::{case, is_alone};
use esker_lab::log::config::{Config, WAYS, policies};
use esker_lab::log::sim_env::{LifeResult, SimEnv, Stop};
use esker_lab::log::workload::{Sizes, Step, workload};

/// Two lives of a log that keeps nothing in memory, so that every look at it reads.
fn two_lives(config: Config, seed: u64, fault: Fault, killed: bool) -> LifeResult<u64> {
    let mut sim_env = SimEnv::new(config, seed);
    sim_env.disk.inject(fault);
    let mut rng = SplitMix64::new(seed);
    let mut steps = Vec::new();
    for _ in 0..4 {
        steps.extend(workload(5, Sizes::Moderate, &mut rng));
        steps.push(Step::Read);
    }
    let life = sim_env.live(&steps)?;
    if killed {
        sim_env.disk.kill();
    } else if let Err(error) = life.log.close() {
        return Err(Stop::Failed(error.into()));
    } else {
        sim_env.observe(&life)?;
    }
    drop(life);
    sim_env.disk.power_on();
    sim_env.live(&[Step::Read])?;
    Ok(sim_env.disk.stats().faults)
}

/// Every read is struck, one at a time. The answer is how many were reported as corruption.
fn every_read(test: &'static str, effect: &Effect) -> usize {
    let mut reported = 0;
    for (seed, policy) in (0..).zip(policies().repeat(5)) {
        let mut config = Config::new(policy).way(WAYS[(seed / 4 % 4) as usize]);
        config.tail_cache = 0;
        if seed % 3 == 0 {
            config.validate = OpenCheck::Full;
        }
        for n in 1..1000 {
            let killed = policy != Policy::OsBuffered && n % 2 == 0;
            let name = format!("{config} seed {seed}, {effect:?} read {n}, killed {killed}");
            let Some(_case) = case(test, &name) else { continue };
            let fault = Fault::on(Op::Read, effect.clone()).nth(n);
            match two_lives(config, seed, fault, killed) {
                Ok(0) => break,
                Ok(_) => {}
                Err(Stop::Failed(
                    Error::Corrupted(_)
                    | Error::UnsupportedVersion { .. }
                    | Error::ForeignFile { .. },
                )) => reported += 1,
                Err(stop) => panic!("{name}: {stop:?}"),
            }
        }
    }
    reported
}

#[test]
fn misdirected_read_is_reported_or_harmless() {
    let test = "faults::lying_reads::misdirected_read_is_reported_or_harmless";
    assert!(every_read(test, &Effect::Misdirect) > 100 || is_alone());
}

#[test]
fn flipped_bit_on_read_is_reported_or_harmless() {
    let test = "faults::lying_reads::flipped_bit_on_read_is_reported_or_harmless";
    assert!(every_read(test, &Effect::BitRot(None)) > 100 || is_alone());
}
