//! Every call of a recovery fails, once or for as long as the recovery runs.
//!
//! Guards: a read error that is taken for a torn tail, so that durable records are cut off; and a
//! recovery that fails halfway and leaves what the next one cannot open.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Persist};
use esker_log::Error;
use esker_testkit::{SplitMix64, mix};

use crate::case::case;
use esker_lab::log::config::{Config, WAYS, policies};
use esker_lab::log::faults::{EXITS, Exit, FaultRun, OPS, exit_and_recover, is_cause, run_struck};
use esker_lab::log::sim_env::SimEnv;
use esker_lab::log::workload::{Sizes, workload};
use esker_lab::plan::{How, Plan};

const HOWS: [How; 4] = [
    How::Kill,
    How::Cut(Persist::Random),
    How::Cut(Persist::Nothing),
    How::Cut(Persist::Everything),
];

/// A log as a crash left it.
fn crashed(config: Config, seed: u64) -> Result<SimEnv, String> {
    let mut rng = SplitMix64::new(seed);
    let steps = workload(16, Sizes::Moderate, &mut rng);
    let mut sim_env = SimEnv::new(config, seed);
    let how = HOWS[(seed % 4) as usize];
    let plan = Plan::during(60 + rng.below(60), how);
    sim_env.live_and_die(&steps, plan)?;
    Ok(sim_env)
}

/// `false` when the fault struck nothing.
fn strike(
    crashed: &SimEnv,
    fault: Fault,
    op: Op,
    effect: &Effect,
    exit: Exit,
) -> Result<bool, String> {
    let mut sim_env = crashed.fork(3);
    let before = sim_env.disk.stats().faults;
    let life = match run_struck(&mut sim_env, &[], fault)? {
        FaultRun::Through(life) => Some(life),
        FaultRun::NotOpened(error) => {
            let right = match &error {
                Error::Io(cause) | Error::NoSpace { cause, .. } => is_cause(cause, op, effect),
                Error::Corrupted(damage) => op == Op::Read && damage.what.contains("read"),
                _ => false,
            };
            if !right {
                return Err(format!("it is reported as {error:?}"));
            }
            None
        }
        FaultRun::Failed { error, .. } => return Err(format!("{error:?}")),
    };
    if sim_env.disk.stats().faults == before {
        return Ok(false);
    }
    exit_and_recover(&mut sim_env, life, exit)?;
    Ok(true)
}

fn every_call(test: &'static str, effect: &Effect, fault: impl Fn(Op, u64) -> Fault) {
    for (seed, policy) in (0..).zip(policies().repeat(3)) {
        let seed = mix(seed, 5) % 1000;
        let config = Config::new(policy).way(WAYS[(seed % 4) as usize]);
        let crashed = match crashed(config, seed) {
            Ok(sim_env) => sim_env,
            Err(error) => panic!("{config} seed {seed}: {error}"),
        };
        for op in OPS {
            for n in 1..500 {
                let exit = EXITS[(n % 4) as usize];
                let name = format!("{config} seed {seed}, {effect:?} of {op:?} {n}, {exit:?}");
                let Some(_case) = case(test, &name) else { continue };
                match strike(&crashed, fault(op, n), op, effect, exit) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => panic!("{name}: {error}"),
                }
            }
        }
    }
}

#[test]
fn recovery_survives_one_failed_call() {
    let eio = |op, n| Fault::on(op, Effect::Io).nth(n);
    every_call("faults::in_recovery::recovery_survives_one_failed_call", &Effect::Io, eio);
    let enospc = |op, n| Fault::on(op, Effect::NoSpace).nth(n);
    every_call("faults::in_recovery::recovery_survives_one_failed_call", &Effect::NoSpace, enospc);
}

#[test]
fn recovery_survives_calls_that_keep_failing() {
    let eio = |op, n: u64| Fault::on(op, Effect::Io).after(n - 1);
    every_call("faults::in_recovery::recovery_survives_calls_that_keep_failing", &Effect::Io, eio);
}
