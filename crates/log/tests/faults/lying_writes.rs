//! The disk lies: a write reports success and is lost, lands elsewhere, or rots.
//!
//! Guards: silent loss. Three more commits follow each lie, and each of them claims that what came
//! before is durable; so whatever is missing, or is not what was written, has to be reported as
//! corruption.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Persist};
use esker_log::{Error, OpenCheck, Policy};
use esker_testkit::SplitMix64;

use crate::case::{case, is_alone};
use esker_lab::log::config::{Config, WAYS, batch};
use esker_lab::log::sim_env::{LifeResult, SimEnv, Stop};
use esker_lab::log::workload::{Sizes, Step, Then, workload};
use esker_lab::plan::How;

#[derive(Debug, Clone, Copy)]
enum Exit {
    Close,
    Die(How),
}

const EXITS: [Exit; 4] = [
    Exit::Close,
    Exit::Die(How::Kill),
    Exit::Die(How::Cut(Persist::Nothing)),
    Exit::Die(How::Cut(Persist::Everything)),
];

/// The outcome of a write that was acknowledged and lost.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// There was no such call.
    None,
    /// It changed nothing that counts.
    Harmless,
    Reported,
}

fn live(config: Config, seed: u64, fault: Fault, exit: Exit) -> LifeResult<Outcome> {
    let mut sim_env = SimEnv::new(config, seed);
    sim_env.disk.inject(fault);
    let mut steps = workload(14, Sizes::Moderate, &mut SplitMix64::new(seed));
    steps.retain(|step| *step != Step::Reopen);
    let mut life = sim_env.live(&steps)?;
    if sim_env.disk.stats().faults == 0 {
        return Ok(Outcome::None);
    }
    let claims = vec![Step::Append { len: 50, then: Then::Wait }; 3];
    sim_env.go(&mut life, &claims)?;
    match exit {
        Exit::Close => match life.log.close() {
            Ok(()) => sim_env.observe(&life)?,
            Err(error) => return Err(Stop::Failed(error.into())),
        },
        Exit::Die(how) => how.strike(&sim_env.disk),
    }
    drop(life);
    sim_env.disk.power_on();
    let mut life = sim_env.open()?;
    sim_env.go(&mut life, &[Step::Read])?;
    Ok(Outcome::Harmless)
}

fn lie(config: Config, seed: u64, fault: Fault, exit: Exit) -> Result<Outcome, String> {
    match live(config, seed, fault, exit) {
        Ok(lie) => Ok(lie),
        // A rotten version or identity is one that this Esker does not know.
        Err(Stop::Failed(
            Error::Corrupted(_) | Error::UnsupportedVersion { .. } | Error::ForeignFile { .. },
        )) => Ok(Outcome::Reported),
        Err(stop) => Err(format!("{stop:?}")),
    }
}

/// Every write of some runs is struck, one at a time. The answer is how many lies were reported.
fn every_write(test: &'static str, effect: &Effect) -> usize {
    let mut reported = 0;
    for policy in [Policy::Always, batch(), Policy::OsBuffered] {
        for way in WAYS {
            for (seed, exit) in (0..).zip(EXITS.repeat(2)) {
                let mut config = Config::new(policy).way(way);
                if seed % 2 == 0 {
                    config.validate = OpenCheck::Full;
                }
                for n in 1..500 {
                    let name = format!("{config} seed {seed}, {effect:?} write {n}, {exit:?}");
                    let Some(_case) = case(test, &name) else { continue };
                    let fault = Fault::on(Op::Write, effect.clone()).nth(n);
                    match lie(config, seed, fault, exit) {
                        Ok(Outcome::None) => break,
                        Ok(Outcome::Harmless) => {}
                        Ok(Outcome::Reported) => reported += 1,
                        Err(error) => panic!("{name}: {error}"),
                    }
                }
            }
        }
    }
    reported
}

#[test]
fn lost_write_is_reported() {
    assert!(
        every_write("faults::lying_writes::lost_write_is_reported", &Effect::Lost) > 100
            || is_alone()
    );
}

#[test]
fn misdirected_write_is_reported() {
    assert!(
        every_write("faults::lying_writes::misdirected_write_is_reported", &Effect::Misdirect)
            > 100
            || is_alone()
    );
}

#[test]
fn flipped_bit_on_write_is_reported() {
    assert!(
        every_write(
            "faults::lying_writes::flipped_bit_on_write_is_reported",
            &Effect::BitRot(None)
        ) > 100
            || is_alone()
    );
}
