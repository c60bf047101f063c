//! The records that each policy may lose, and does lose: a loss that is never seen proves nothing.
//!
//! Guards: a policy that keeps less than it promises, and one that syncs more often than it is paid
//! for.
#![allow(clippy::panic)] // What tests share fails loudly.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, Persist};
use esker_log::{AppendError, Engine, Log, Policy};
use esker_testkit::SplitMix64;

use crate::case::{case, is_alone};
use esker_lab::log::config::{Config, SECTORS, WAYS, batch};
use esker_lab::log::model::appends;
use esker_lab::log::sim_env::{Life, SimEnv, Stop};
use esker_lab::log::workload::{Step, Then};
use esker_lab::log::{BATCH_RECORDS, DIR, SYNC_PERIOD};
use esker_lab::plan::{How, Plan};

fn append(then: Then) -> Step {
    Step::Append { len: 100, then }
}

fn atomic_batch(then: Then) -> Step {
    Step::Batch { lens: vec![20; 3], atomic: true, gap: None, then }
}

/// Opens a log, goes through the steps, dies this way, and says how many appends were lost. An
/// atomic batch is one append.
fn lost_after(config: Config, seed: u64, steps: &[Step], how: How) -> Result<usize, String> {
    let reported = |stop: Stop| format!("{config}, {how:?}: {stop:?}");
    let mut sim_env = SimEnv::new(config, seed);
    let life = sim_env.live(steps).map_err(reported)?;
    sim_env.die(life, how)?;
    let life = sim_env.open().map_err(reported)?;
    Ok(appends(&life.lost))
}

/// As `lost_after`, for every sector size and way of writing, and the largest loss of all.
fn most_lost(policy: Policy, steps: &[Step], how: How) -> usize {
    let mut most = 0;
    for sector in SECTORS {
        for way in WAYS {
            for seed in 0..4 {
                let config = Config::new(policy).sector(sector).way(way);
                match lost_after(config, seed, steps, how) {
                    Ok(lost) => most = most.max(lost),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    most
}

const NOTHING: How = How::Cut(Persist::Nothing);

#[test]
fn always_keeps_every_awaited_record() {
    let steps = vec![append(Then::Wait); 30];
    for how in [How::Kill, NOTHING, How::Cut(Persist::Random)] {
        assert_eq!(most_lost(Policy::Always, &steps, how), 0);
    }
}

#[test]
fn always_commits_dropped_tickets_once_the_engine_runs() {
    let mut steps = vec![append(Then::Drop); 30];
    steps.push(Step::Run);
    assert_eq!(most_lost(Policy::Always, &steps, NOTHING), 0);
    steps.push(append(Then::Drop));
    assert_eq!(most_lost(Policy::Always, &steps, NOTHING), 1);
}

#[test]
fn awaited_barrier_makes_everything_durable_under_every_policy() {
    let mut steps = vec![append(Then::Keep); 4];
    steps.push(Step::Flush { then: Then::Wait });
    for policy in [batch(), Policy::Periodic(SYNC_PERIOD), Policy::OsBuffered, Policy::Always] {
        assert_eq!(most_lost(policy, &steps, NOTHING), 0, "{policy:?}");
    }
}

/// Appends at risk after each of many, under `Batch(n)`: between two commits, and with one that is
/// due and not yet done.
fn batch_windows(n: u64, step: &Step) -> (usize, usize) {
    let policy = Policy::Batch(NonZeroU64::new(n).unwrap_or(NonZeroU64::MIN));
    let (mut idle, mut busy) = (0, 0);
    for count in 1..=(4 * n as usize) {
        let steps = vec![step.clone(); count];
        busy = busy.max(most_lost(policy, &steps, NOTHING));
        let runs: Vec<Step> = steps.iter().flat_map(|s| [s.clone(), Step::Run]).collect();
        idle = idle.max(most_lost(policy, &runs, NOTHING));
    }
    (idle, busy)
}

#[test]
fn batch_loses_at_most_its_bound() {
    for n in [1, 2, BATCH_RECORDS] {
        let steps = [append(Then::Drop), append(Then::Keep), atomic_batch(Then::Drop)];
        for step in steps {
            let (idle, busy) = batch_windows(n, &step);
            assert_eq!(idle as u64, n - 1, "Batch({n}), no commit in flight: {step:?}");
            assert_eq!(busy as u64, 2 * n - 1, "Batch({n}), a commit in flight: {step:?}");
        }
    }
}

/// Cuts inside the commits of a batch, which is where two windows are open at once.
#[test]
fn batch_keeps_its_bound_when_power_fails_during_a_commit() {
    let config = Config::new(batch()).way((true, false));
    let steps: Vec<Step> = (0..40)
        .flat_map(|n| [append(Then::Drop), if n % 3 == 0 { Step::Run } else { append(Then::Keep) }])
        .collect();
    let mut most = 0;
    for operation in 28..120 {
        for persist in [Persist::Nothing, Persist::Random] {
            let plan = Plan::during(operation, How::Cut(persist));
            let name = format!("{config} {plan}");
            let test = "crash::policies::batch_keeps_its_bound_when_power_fails_during_a_commit";
            let Some(_case) = case(test, &name) else { continue };
            let mut sim_env = SimEnv::new(config, operation);
            let died = sim_env.live_and_die(&steps, plan);
            assert_eq!(died, Ok(()), "{name}");
            match sim_env.open() {
                Ok(life) => most = most.max(life.lost.len()),
                Err(stop) => panic!("{name}: {stop:?}"),
            }
        }
    }
    let seen = (1..2 * BATCH_RECORDS as usize).contains(&most);
    assert!(seen || is_alone(), "{most} records were lost");
}

#[test]
fn periodic_loses_only_records_younger_than_its_period() {
    for (n, way) in (0..).zip(WAYS) {
        let config = Config::new(Policy::Periodic(SYNC_PERIOD)).way(way);
        let mut oldest = Duration::ZERO;
        for count in 1..40 {
            let mut rng = SplitMix64::new(count + 100 * n);
            let steps: Vec<Step> = (0..count)
                .flat_map(|_| {
                    let pause = Duration::from_millis(rng.below(4));
                    [append(Then::Drop), Step::Advance(pause), Step::Run]
                })
                .collect();
            let mut sim_env = SimEnv::new(config, count);
            let (life, now) = match sim_env.live(&steps) {
                Ok(life) => {
                    let now = life.clock;
                    (life, now)
                }
                Err(stop) => panic!("{config}: {stop:?}"),
            };
            let died = sim_env.die(life, NOTHING);
            assert_eq!(died, Ok(()));
            let life: Life = match sim_env.open() {
                Ok(life) => life,
                Err(stop) => panic!("{config}: {stop:?}"),
            };
            for entry in &life.lost {
                assert!(entry.at + SYNC_PERIOD > now, "{} of {:?} at {now:?}", entry.seq, entry.at);
                oldest = oldest.max(now - entry.at);
            }
        }
        assert!(oldest > SYNC_PERIOD / 2, "the window was never seen open: {oldest:?}");
    }
}

#[test]
fn os_buffered_loses_only_unwritten_records_to_a_kill() {
    let mut steps = vec![append(Then::Drop); 10];
    assert_eq!(most_lost(Policy::OsBuffered, &steps, How::Kill), 10, "nothing was written");
    steps.push(Step::Run);
    assert_eq!(most_lost(Policy::OsBuffered, &steps, How::Kill), 0);
    steps.extend([append(Then::Drop), append(Then::Drop)]);
    assert_eq!(most_lost(Policy::OsBuffered, &steps, How::Kill), 2);
}

#[test]
fn os_buffered_may_lose_every_unsynced_record_to_a_power_cut() {
    let mut steps = vec![append(Then::Drop), append(Then::Wait)];
    steps.extend(vec![append(Then::Drop); 10]);
    steps.push(Step::Run);
    assert_eq!(most_lost(Policy::OsBuffered, &steps, NOTHING), 10);
    assert_eq!(most_lost(Policy::OsBuffered, &steps, How::Cut(Persist::Everything)), 0);
}

/// `SYNC_PERIOD` is a timer and not a hint for the next append.
#[test]
fn periodic_commits_without_another_call() {
    let steps = [append(Then::Keep), append(Then::Keep), Step::Advance(SYNC_PERIOD)];
    assert_eq!(most_lost(Policy::Periodic(SYNC_PERIOD), &steps, NOTHING), 0);
    let steps = [
        append(Then::Keep),
        append(Then::Keep),
        Step::Advance(SYNC_PERIOD - Duration::from_nanos(1)),
    ];
    assert_eq!(most_lost(Policy::Periodic(SYNC_PERIOD), &steps, NOTHING), 2);
}

/// With a commit in flight, the append that would put a 2n-th record at risk waits for its end.
#[test]
fn batch_waits_at_its_bound() {
    let config = Config::new(batch()).way((true, false));
    let disk = config.disk(1);
    let engine = match Engine::new(1) {
        Ok(engine) => engine,
        Err(error) => panic!("{error}"),
    };
    let opened = Log::builder(DIR).options(config.options(Arc::new(disk.clone()), &engine)).open();
    let Ok(log) = opened else { panic!("{opened:?}") };
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Sync, Effect::Block(gate.clone())).path(".seg"));
    let accept = || log.append_timeout(b"record", Duration::from_secs(60)).map(drop);
    for n in 0..BATCH_RECORDS {
        assert!(accept().is_ok(), "{n}");
    }
    assert!(gate.wait_for(1, Duration::from_secs(60)), "the commit of the first {BATCH_RECORDS}");
    for n in BATCH_RECORDS..2 * BATCH_RECORDS - 1 {
        assert!(accept().is_ok(), "{n}");
    }
    assert!(matches!(log.try_append(b"one too many"), Err(AppendError::Full)));
    let waited = log.append_timeout(b"one too many", Duration::from_millis(20));
    assert!(matches!(waited, Err(AppendError::Timeout)), "{waited:?}");
    assert_eq!(log.stats().pending, 2 * BATCH_RECORDS - 1);
    gate.open();
    assert!(accept().is_ok());
}
