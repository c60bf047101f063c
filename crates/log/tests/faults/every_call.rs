//! Every call of a run fails once: reads, writes, syncs, sizes, names, locks, one at a time.
//!
//! Guards: an error that is swallowed, loses its kind or stops the log from opening ever again; a
//! log that continues after a failed write or sync; a record called durable that was not.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::Op;
use esker_disk::sim::{CacheAfterFailedSync, Effect, Fault};
use esker_log::{Error, Policy};

use crate::case::case;
use esker_lab::log::config::{Config, batch, segments};
use esker_lab::log::faults::{
    EXITS, Exit, FaultRun, OPS, check_failed_state, check_left_alone, exit_and_recover, is_cause,
    run_struck, steps_under_faults,
};
use esker_lab::log::history::History;
use esker_lab::log::sim_env::SimEnv;
use esker_lab::log::workload::Step;

const CACHES: [CacheAfterFailedSync; 2] =
    [CacheAfterFailedSync::NewStaysReadable, CacheAfterFailedSync::OldComesBack];

fn configs() -> Vec<Config> {
    let kinds = [
        Config::new(Policy::Always),
        Config::new(Policy::Always).way((false, false)).retention(segments(2)),
        Config::new(batch()).way((true, false)),
        Config::new(Policy::OsBuffered),
    ];
    kinds.iter().flat_map(|config| CACHES.map(|cache| config.cache(cache))).collect()
}

/// Strikes the `n`th call of `op`. `false` when there was none.
fn strike(config: Config, op: Op, effect: &Effect, n: u64, exit: Exit) -> Result<bool, String> {
    let steps = steps_under_faults(&config);
    let history = History::default();
    let mut sim_env = SimEnv::new(config, n);
    sim_env.history = Some(history.clone());
    let fault = Fault::on(op, effect.clone()).nth(n);
    let life = match run_struck(&mut sim_env, &steps, fault)? {
        FaultRun::Through(_) if sim_env.disk.stats().faults == 0 => return Ok(false),
        FaultRun::Through(life) => Some(life),
        FaultRun::NotOpened(error) => {
            check_error(&error, op, effect)?;
            None
        }
        FaultRun::Failed { life, step, error } => {
            check_error(&error, op, effect).map_err(|error| format!("{step:?}: {error}"))?;
            let reads = step == Step::Read || op == Op::Read;
            if matches!(error, Error::NoSpace { .. }) {
                // Nothing was accepted, and nothing is poisoned.
                let goes_on =
                    life.log.append(b"room").and_then(|ticket| Ok(ticket.blocking_wait()?));
                if step != Step::Reopen {
                    goes_on.map_err(|error| format!("{step:?}, after NoSpace: {error:?}"))?;
                    sim_env.accepted_unseen(b"room");
                }
            } else if !reads && step != Step::Reopen {
                check_failed_state(&sim_env, &life, op, effect)
                    .and_then(|()| check_left_alone(&history))
                    .map_err(|error| format!("{step:?}: {error}"))?;
            }
            Some(life)
        }
    };
    exit_and_recover(&mut sim_env, life, exit)?;
    Ok(true)
}

/// The first caller gets the failure itself, or the log's refusal with it as the cause.
fn check_error(error: &Error, op: Op, effect: &Effect) -> Result<(), String> {
    match error {
        Error::Io(cause) | Error::Poisoned(cause) | Error::NoSpace { cause, .. }
            if is_cause(cause, op, effect) =>
        {
            Ok(())
        }
        // Bytes that cannot be read are corruption where they were durable.
        Error::Corrupted(damage) if op == Op::Read && damage.what.contains("read") => Ok(()),
        other => Err(format!("{effect:?} of {op:?} is reported as {other:?}")),
    }
}

fn every_call(test: &'static str, ops: &[Op], effect: &Effect) {
    for config in configs() {
        for op in ops {
            for n in 1.. {
                let exit = EXITS[(n % 4) as usize];
                let name = format!("{config}, {effect:?} of {op:?} {n}, {exit:?}");
                let Some(_case) = case(test, &name) else { if n > 500 { break } else { continue } };
                match strike(config, *op, effect, n, exit) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => panic!("{name}: {error}"),
                }
            }
        }
    }
}

/// No failure is swallowed, and a reopen has every record that was reported as durable.
#[test]
fn eio_at_every_call() {
    every_call("faults::every_call::eio_at_every_call", &OPS, &Effect::Io);
}

/// Guards against a commit that ignores a full disk: file systems that copy on write, and quotas,
/// refuse writes to reserved blocks, too.
#[test]
fn enospc_at_every_call() {
    let ops = [Op::Write, Op::Size, Op::Open, Op::CreateDir];
    every_call("faults::every_call::enospc_at_every_call", &ops, &Effect::NoSpace);
}

#[test]
fn write_of_zero_bytes_at_every_call() {
    every_call(
        "faults::every_call::write_of_zero_bytes_at_every_call",
        &[Op::Write],
        &Effect::Short(Some(0)),
    );
}
