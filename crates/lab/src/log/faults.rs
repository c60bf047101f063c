//! A life under a fault: what the log may answer, and what must hold afterwards.

use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Persist};
use esker_log::{Append, Error, LogError, Start};
use esker_testkit::SplitMix64;

use super::config::Config;
use super::history::History;
use super::sim_env::{Life, SimEnv, Stop};
use super::workload::{Sizes, Step, workload};
use crate::plan::{How, Plan};

/// All operations that a fault can strike.
pub const OPS: [Op; 11] = [
    Op::Open,
    Op::CreateDir,
    Op::Read,
    Op::Write,
    Op::Sync,
    Op::Size,
    Op::Rename,
    Op::Unlink,
    Op::SyncDir,
    Op::List,
    Op::Lock,
];

/// The outcome of a run under a fault.
#[derive(Debug)]
pub enum FaultRun {
    /// The run in which no caller got an error from the fault.
    Through(Life),
    /// The log did not open.
    NotOpened(Error),
    /// A step failed, and the steps after it were not gone.
    Failed { life: Life, step: Step, error: Error },
}

/// Opens a log and goes through the steps, with the fault in force from the start.
pub fn run_struck(sim_env: &mut SimEnv, steps: &[Step], fault: Fault) -> Result<FaultRun, String> {
    sim_env.disk.inject(fault);
    let mut life = match sim_env.open() {
        Ok(life) => life,
        Err(Stop::Failed(error)) => return Ok(FaultRun::NotOpened(error)),
        Err(stop) => return Err(format!("{stop}")),
    };
    for step in steps {
        match sim_env.go(&mut life, std::slice::from_ref(step)) {
            Ok(()) => {}
            Err(Stop::Failed(error)) => {
                return Ok(FaultRun::Failed { life, step: step.clone(), error });
            }
            Err(stop) => return Err(format!("at {step:?}: {stop}")),
        }
    }
    Ok(FaultRun::Through(life))
}

/// Some lives of one log, with a fault in each, once or for some time, and a last one without.
/// `cuts` counts the crashes.
pub fn lives_with_faults(
    sim_env: &mut SimEnv,
    rng: &mut SplitMix64,
    cuts: &mut u64,
) -> Result<(), String> {
    let sizes = rng.pick(&[Sizes::Mixed, Sizes::Moderate, Sizes::Moderate, Sizes::Small]);
    for n in 0..2 + rng.below(4) {
        let steps = 4 + rng.index(16);
        let steps = workload(steps, sizes, rng);
        let span = rng.pick(&[12, 40, 120, 250]);
        let mut plan = Plan::within(&sim_env.disk, span, rng);
        let (op, fault) = any_fault(rng);
        // What a write or sync that failed leaves in the page cache, only a kill keeps there.
        let kills = if matches!(op, Op::Sync | Op::Write) { 50 } else { 25 };
        if rng.percent(kills) {
            plan.how = How::Kill;
        }
        let name = format!("{}, life {n} until {plan}, {fault:?}", sim_env.config);
        sim_env.disk.inject(fault);
        plan.arm(&sim_env.disk);
        let lived = sim_env.live(&steps);
        sim_env.disk.cancel_cut();
        sim_env.disk.clear_faults();
        let (life, error) = match lived {
            Ok(life) => (Some(life), None),
            Err(Stop::Ended) => (None, None),
            Err(Stop::Failed(error)) => (None, Some(error)),
            Err(Stop::Broken(what)) => return Err(format!("{name}: {what}")),
        };
        match error {
            None | Some(Error::Io(_) | Error::Poisoned(_) | Error::NoSpace { .. }) => {}
            Some(Error::Corrupted(damage)) if op == Op::Read && damage.what.contains("read") => {}
            Some(error) => return Err(format!("{name}: {error:?}")),
        }
        *cuts += 1;
        sim_env.die_after_fault(life, plan.how)?;
        if plan.how == How::Kill {
            // What an opening reads may be in the page cache only. What it reports survives.
            let then = |stop: Stop| format!("{name}: then {stop}");
            let opened = sim_env.open().map_err(then)?;
            sim_env.die(opened, How::Cut(Persist::Nothing))?;
            let opened = sim_env.open().map_err(then)?;
            if !opened.lost.is_empty() {
                return Err(format!(
                    "{name}: {} records were recovered, and lost again",
                    opened.lost.len()
                ));
            }
            sim_env.die(opened, How::Cut(Persist::Nothing))?;
            *cuts += 2;
        }
    }
    let config = sim_env.config;
    sim_env.live_and_close(&[]).map_err(|error| format!("{config}, last life: {error}"))
}

fn any_fault(rng: &mut SplitMix64) -> (Op, Fault) {
    // What fails most often is what makes records durable.
    let op = match rng.below(5) {
        0 => Op::Sync,
        1 => Op::Write,
        _ => rng.pick(&OPS),
    };
    // Those that the call can have.
    let effect = match (rng.below(6), op) {
        (0, Op::Write | Op::Size | Op::Open | Op::CreateDir) => Effect::NoSpace,
        (1 | 2, Op::Write | Op::Read) => Effect::Short(None),
        (3, _) => Effect::Slow(Duration::from_millis(5)),
        _ => Effect::Io,
    };
    // Most lives have few calls of a kind. A fault after the last one strikes nothing.
    let calls = rng.pick(&[2, 8, 8, 20, 60]);
    let fault = Fault::on(op, effect).after(rng.below(calls));
    let fault = match op {
        Op::Sync | Op::Write if rng.percent(50) => fault.path(".seg"),
        _ => fault,
    };
    let fault = match rng.below(3) {
        // Recovery tries a block twice; when that fails it may be the one that the cut tore, and
        // what no claim follows goes with it.
        _ if op == Op::Read => fault.times(1),
        0 => fault.times(1),
        1 => fault.times(1 + rng.below(5)),
        _ => fault.percent(10),
    };
    (op, fault)
}

/// Whether the error is of the kind that the effect gives.
pub fn is_cause(cause: &esker_disk::Error, op: Op, effect: &Effect) -> bool {
    cause.op() == op
        && match effect {
            Effect::Io => cause.os_code() == Some(5),
            Effect::NoSpace => cause.kind() == std::io::ErrorKind::StorageFull,
            Effect::Os(code) => cause.os_code() == Some(*code),
            Effect::Short(Some(0)) => cause.kind() == std::io::ErrorKind::WriteZero,
            _ => false,
        }
}

/// A log whose write or sync failed: refuses every append with the cause, and continues reading.
pub fn check_failed_state(
    sim_env: &SimEnv,
    life: &Life,
    op: Op,
    effect: &Effect,
) -> Result<(), String> {
    let log = &life.log;
    let before = log.accepted();
    let late = [b"late", b"late"];
    let calls = [
        ("append", log.append(b"late").map_err(Error::from)),
        ("try_append", log.try_append(b"late").map_err(Error::from)),
        ("write", log.write(Append::records(&late)).map_err(Error::from)),
        ("write (atomic)", log.write(Append::records(&late).atomic()).map_err(Error::from)),
        ("flush", log.barrier().map_err(Error::from)),
    ];
    for (call, refused) in calls {
        match refused {
            Err(Error::Poisoned(cause)) if is_cause(&cause, op, effect) => {}
            other => return Err(format!("{call} after a failure gives {other:?}")),
        }
    }
    if log.accepted() != before {
        return Err("something was accepted after a failure".into());
    }
    let seen = sim_env.read_all(log, Start::Oldest).map_err(|stop| format!("{stop}"))?;
    sim_env.model.matches(&seen)?;
    for entry in sim_env.model.readable() {
        match log.read(entry.seq) {
            Ok(view) if *view == *entry.payload => {}
            other => return Err(format!("{} after a failure: {other:?}", entry.seq)),
        }
    }
    match log.close() {
        Err(LogError::Poisoned(_)) => Ok(()),
        other => Err(format!("closing after a failure gives {other:?}")),
    }
}

/// Checks that nothing was written to the file that failed, nor to a segment, nor synced, after the
/// failure.
pub fn check_left_alone(history: &History) -> Result<(), String> {
    let events = history.events();
    let Some(failed) = events.iter().position(|event| !event.ok) else {
        return Ok(());
    };
    let (path, later) = (&events[failed].path, &events[failed + 1..]);
    let mut late = later.iter().filter(|event| {
        let segment = event.path.extension().is_some_and(|extension| extension == "seg");
        matches!(event.op, Op::Sync | Op::Write) && (segment || event.path == *path)
    });
    match late.next() {
        None => Ok(()),
        Some(event) => Err(format!("after a failure of {}: {event:?}", path.display())),
    }
}

/// How the life under a fault ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The program drops its handles and goes.
    Drop,
    Die(How),
}

pub const EXITS: [Exit; 4] = [
    Exit::Drop,
    Exit::Die(How::Kill),
    Exit::Die(How::Cut(Persist::Random)),
    Exit::Die(How::Cut(Persist::Nothing)),
];

/// The fault is over and the process goes. Reopening must work; what it calls durable must survive
/// the power cut that follows at once; and the log continues.
pub fn exit_and_recover(
    sim_env: &mut SimEnv,
    life: Option<Life>,
    exit: Exit,
) -> Result<(), String> {
    sim_env.disk.clear_faults();
    if let Exit::Die(how) = exit {
        how.strike(&sim_env.disk);
        sim_env.disk.power_on();
    }
    drop(life);
    sim_env.history = None;
    // After a fault the page cache may hold anything.
    sim_env.model.lose_cache();
    let reported = |stop: Stop| format!("reopening after {exit:?}: {stop}");
    let life = sim_env.open().map_err(reported)?;
    sim_env.die(life, How::Cut(Persist::Nothing))?;
    let mut life = sim_env.open().map_err(|stop| format!("the power went after that: {stop}"))?;
    if !life.lost.is_empty() {
        return Err(format!("{} records were recovered, and lost again", life.lost.len()));
    }
    let steps = workload(4, Sizes::Small, &mut SplitMix64::new(7));
    sim_env.go(&mut life, &steps).map_err(reported)?;
    sim_env.die(life, How::Cut(Persist::Random))?;
    sim_env.live_and_close(&[])
}

/// The fault that strikes the `n`th of these calls, and the program it strikes.
pub fn steps_under_faults(config: &Config) -> Vec<Step> {
    let mut rng = SplitMix64::new(config.buffers.into());
    let mut steps = workload(12, Sizes::Moderate, &mut rng);
    steps.push(Step::Reopen);
    steps.extend(workload(8, Sizes::Moderate, &mut rng));
    steps.extend([Step::Truncate { percent: 70 }, Step::Run, Step::Read]);
    steps.extend(workload(4, Sizes::Moderate, &mut rng));
    steps
}

/// A plan that never comes.
pub fn never() -> Plan {
    Plan::before(u64::MAX, How::Kill)
}
