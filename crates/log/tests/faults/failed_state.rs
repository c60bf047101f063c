//! The errors of a failed write or sync: the waiters of its records get the failure itself, every
//! later caller is refused with the same cause, and what was durable can be read.
//!
//! Guards: a lost or changed cause, a failure that wears off, a reader that fails with the writer.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::Op;
use esker_disk::sim::{CacheAfterFailedSync, Effect, Fault};
use esker_log::{AppendError, LogError, Policy, Seq};

use esker_lab::log::config::{Config, batch};
use esker_lab::log::faults::{EXITS, check_failed_state, exit_and_recover, is_cause};
use esker_lab::log::sim_env::{Life, SimEnv};
use esker_lab::log::workload::{Step, Then};

/// The call that fails, how, and whether writes are direct and durable by themselves.
const FAILURES: [(Op, Effect, (bool, bool)); 5] = [
    (Op::Sync, Effect::Io, (true, false)),
    (Op::Sync, Effect::Os(122), (false, false)),
    (Op::Write, Effect::Io, (true, true)),
    (Op::Write, Effect::NoSpace, (true, true)),
    (Op::Write, Effect::Short(Some(0)), (false, false)),
];

fn for_each_failure(mut test: impl FnMut(SimEnv, Life, Op, &Effect)) {
    for cache in [CacheAfterFailedSync::NewStaysReadable, CacheAfterFailedSync::OldComesBack] {
        for policy in [Policy::Always, batch()] {
            for (op, effect, way) in &FAILURES {
                let config = Config::new(policy).way(*way).cache(cache);
                let mut sim_env = SimEnv::new(config, 1);
                let durable = vec![Step::Append { len: 700, then: Then::Wait }; 5];
                match sim_env.live(&durable) {
                    Ok(life) => test(sim_env, life, *op, effect),
                    Err(stop) => panic!("{config}: {stop:?}"),
                }
            }
        }
    }
}

/// Steps that must go well.
fn go(sim_env: &mut SimEnv, life: &mut Life, steps: &[Step]) {
    if let Err(stop) = sim_env.go(life, steps) {
        panic!("{}: {stop:?}", sim_env.config);
    }
}

fn keep(count: usize) -> Vec<Step> {
    vec![Step::Append { len: 300, then: Then::Keep }; count]
}

#[test]
fn failed_commit_returns_the_cause_and_later_calls_return_poisoned() {
    for_each_failure(|mut sim_env, mut life, op, effect| {
        go(&mut sim_env, &mut life, &keep(3));
        sim_env.disk.inject(Fault::on(op, effect.clone()).path(".seg").nth(1));
        let mut tickets = std::mem::take(&mut life.kept).into_iter();
        for ticket in tickets.by_ref() {
            match ticket.blocking_wait() {
                Err(LogError::Io(cause)) => {
                    assert!(is_cause(&cause, op, effect), "{cause:?}");
                    assert!(cause.path().to_string_lossy().ends_with(".seg"), "{cause:?}");
                }
                other => panic!("{op:?} {effect:?}: {other:?}"),
            }
        }
        assert_eq!(life.log.durable(), Seq(5));
        assert_eq!(check_failed_state(&sim_env, &life, op, effect), Ok(()));
    });
}

#[test]
fn records_staged_after_the_failed_commit_return_poisoned() {
    for_each_failure(|mut sim_env, mut life, op, effect| {
        // The first fills a buffer, so that the second is in a commit of its own.
        go(&mut sim_env, &mut life, &[Step::Append { len: 8000, then: Then::Keep }]);
        go(&mut sim_env, &mut life, &keep(1));
        sim_env.disk.inject(Fault::on(op, effect.clone()).path(".seg").nth(1));
        let kept = std::mem::take(&mut life.kept);
        let reported: Vec<_> =
            kept.into_iter().map(|ticket| ticket.blocking_wait().err()).collect();
        match &reported[..] {
            [Some(LogError::Io(first)), Some(LogError::Poisoned(second))] => {
                assert!(is_cause(first, op, effect), "{first:?}");
                assert!(is_cause(second, op, effect), "{second:?}");
            }
            other => panic!("{op:?} {effect:?}: {other:?}"),
        }
    });
}

#[test]
fn failed_log_stays_failed() {
    for_each_failure(|mut sim_env, mut life, op, effect| {
        sim_env.disk.inject(Fault::on(op, effect.clone()).path(".seg").nth(1));
        go(&mut sim_env, &mut life, &keep(1));
        drop(life.kept.pop().map(|ticket| ticket.blocking_wait()));
        let (syncs, writes) = (sim_env.disk.stats().syncs, sim_env.disk.stats().writes);
        for _ in 0..3 {
            life.engine.run();
            assert!(matches!(
                life.log.append(b"again"),
                Err(AppendError::Log(LogError::Poisoned(_)))
            ));
            assert!(matches!(life.log.barrier(), Err(LogError::Poisoned(_))));
        }
        let _ = life.log.close();
        assert_eq!(sim_env.disk.stats().syncs, syncs, "a failed sync is never retried");
        assert_eq!(sim_env.disk.stats().writes, writes, "nothing is written after a failure");
    });
}

#[test]
fn reopen_recovers_from_a_failure() {
    for exit in EXITS {
        for_each_failure(|mut sim_env, mut life, op, effect| {
            go(&mut sim_env, &mut life, &keep(2));
            sim_env.disk.inject(Fault::on(op, effect.clone()).path(".seg").nth(1));
            for ticket in std::mem::take(&mut life.kept) {
                assert!(ticket.blocking_wait().is_err());
            }
            let recovered = exit_and_recover(&mut sim_env, Some(life), exit);
            assert_eq!(recovered, Ok(()), "{} {op:?} {effect:?}", sim_env.config);
        });
    }
}
