//! Kills: a child process writes to a component on a real disk and is killed at a random moment.
//!
//! A kill keeps the page cache. So it shows what a process that dies loses, and not what a power
//! cut does: see [`crate::power_cuts`] for that.
//!
//! A run goes through [`RUN_LIVES`] lives of one directory. In each a child process writes numbered
//! values as fast as it can, until this process kills it with SIGKILL at a random moment. Then
//! this process opens the directory, and compares what recovery found with what the child said
//! before it died, value by value.

mod manager;
mod progress;
mod writer;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use esker_testkit::{SplitMix64, mix};
use rustix::process::Signal;

use crate::outcome::{Outcome, Run};
use crate::promise::Promise;
use crate::setting::{Setting, settings};
use crate::survival::Survival;
use manager::ManagerWriter;
use progress::{Progress, now};
use writer::{ConsensusWriter, KvWriter, LogWriter, Writer};

/// The lives of a run, and so its kills.
const RUN_LIVES: u64 = 3;
/// How long a child may take to the moment of its end.
const CHILD_TIMEOUT: Duration = Duration::from_secs(60);
/// The most writes in a life. A child that is not killed ends with an error.
const LIFE_WRITES_MAX: u64 = progress::TIMES_KEPT;

/// Kills under one setting.
#[derive(Debug, Clone, Copy)]
pub struct Kills {
    /// The component and its policy.
    pub setting: Setting,
    run: fn(usize, u64, &Path, Spawn<'_>) -> Run,
    write: fn(usize, &Life) -> Result<(), String>,
}

/// The task of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// The directory of the component.
    pub dir: PathBuf,
    /// The file in which the child says how far it is.
    pub progress: PathBuf,
    /// The number of the first write.
    pub from: u64,
    /// Makes the values.
    pub seed: u64,
}

/// Starts the child of a life: a process that calls [`Kills::write`].
pub type Spawn<'a> = &'a dyn Fn(&Life) -> io::Result<Child>;

/// Returns the kills of every component under each of its policies.
pub fn kills() -> Vec<Kills> {
    let mut all = Vec::new();
    all.extend(kills_of::<LogWriter>("log"));
    all.extend(kills_of::<ConsensusWriter>("consensus"));
    all.extend(kills_of::<ManagerWriter>("manager"));
    all.extend(kills_of::<KvWriter>("kv"));
    all
}

fn kills_of<W: Writer>(component: &'static str) -> impl Iterator<Item = Kills> {
    let kills = |setting| Kills { setting, run: run::<W>, write: write::<W> };
    settings("kill", component, W::POLICIES).map(kills)
}

impl Kills {
    /// Goes through runs with the seeds from `first_seed` on, in folders of `dir`, which are
    /// removed, except those of runs that broke a promise. `progress` is called after each run.
    pub fn run(
        &self,
        dir: &Path,
        first_seed: u64,
        runs: u64,
        spawn: Spawn<'_>,
        progress: &dyn Fn(),
    ) -> Outcome {
        let Setting { component, policy, promise, index, .. } = self.setting;
        let mut outcome = Outcome::default();
        for seed in (0..runs).map(|n| first_seed.wrapping_add(n)) {
            let dir = dir.join(format!("{component}-{policy}-{seed}"));
            outcome.add(&(self.run)(index, seed, &dir, spawn), promise);
            progress();
        }
        outcome
    }

    /// The work of a child: writes until it is killed.
    ///
    /// # Errors
    /// The text names the step that failed, or says that the child was not killed.
    pub fn write(&self, life: &Life) -> Result<(), String> {
        (self.write)(self.setting.index, life)
    }
}

/// The value of a write. Writes of different lives differ.
fn value(seed: u64, n: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(mix(seed, n));
    let mut value = n.to_le_bytes().to_vec();
    value.extend((0..rng.below(240)).map(|_| rng.next() as u8));
    value
}

fn write<W: Writer>(policy: usize, life: &Life) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", life.progress.display());
    let progress = Progress::open(&life.progress).map_err(failed)?;
    let mut writer = W::open(&life.dir, W::POLICIES[policy].1)?;
    writer.resume()?;
    let mut durable = life.from;
    for n in life.from..life.from + LIFE_WRITES_MAX {
        progress.begin(n).map_err(failed)?;
        writer.write(n, &value(life.seed, n))?;
        progress.accept(n).map_err(failed)?;
        let now_durable = writer.durable();
        if now_durable > durable {
            durable = now_durable;
            progress.set_durable(durable).map_err(failed)?;
        }
    }
    Err(format!("was not killed in {LIFE_WRITES_MAX} writes"))
}

fn run<W: Writer>(policy: usize, seed: u64, dir: &Path, spawn: Spawn<'_>) -> Run {
    let mut run = Run { seed, cuts: 0, survivals: Vec::new(), outcome: Ok(()) };
    run.outcome = lives::<W>(policy, dir, spawn, &mut run);
    match &mut run.outcome {
        // What cannot be removed stays.
        Ok(()) => drop(std::fs::remove_dir_all(dir)),
        Err(what) => what.push_str(&format!("; {} is left as it is", dir.display())),
    }
    run
}

fn lives<W: Writer>(
    policy: usize,
    dir: &Path,
    spawn: Spawn<'_>,
    run: &mut Run,
) -> Result<(), String> {
    let (_, policy, promise) = W::POLICIES[policy];
    std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut written = Vec::new();
    let mut rng = SplitMix64::new(run.seed);
    for n in 0..RUN_LIVES {
        let life = Life {
            dir: dir.join("data"),
            progress: dir.join("progress"),
            from: written.len() as u64,
            seed: mix(run.seed, n),
        };
        // After so many writes, or within the first periods of a timer; at last so late that a
        // policy that never commits has lost too much.
        let end = match promise {
            Promise::Age(most) if n + 1 == RUN_LIVES => (0, most + Duration::from_millis(500)),
            _ if rng.percent(50) => (rng.below(3000), Duration::from_micros(rng.below(3000))),
            _ => (0, Duration::from_micros(rng.below(300_000))),
        };
        let outcome = one_life::<W>((policy, promise), &life, &mut written, end, spawn, run);
        outcome.map_err(|what| format!("from write {} on: {what}", life.from))?;
    }
    Ok(())
}

/// Runs a life. `written` has the values before it, and gets those that recovery found.
fn one_life<W: Writer>(
    (policy, promise): (W::Policy, Promise),
    life: &Life,
    written: &mut Vec<Vec<u8>>,
    (writes, after): (u64, Duration),
    spawn: Spawn<'_>,
    run: &mut Run,
) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", life.progress.display());
    let progress = Progress::open(&life.progress).map_err(failed)?;
    progress.start(life.from).map_err(failed)?;
    let child = spawn(life).map_err(|error| format!("failed to start a child: {error}"))?;
    let killed = kill(child, &progress, life.from + 1 + writes, after)?;
    let (begun, accepted) =
        (progress.begun().map_err(failed)?, progress.accepted().map_err(failed)?);
    let durable = progress.durable().map_err(failed)?;
    run.cuts += 1;
    // What is answered is durable then, though the child may not have come to say so.
    let durable = if promise == Promise::NoLoss { durable.max(accepted) } else { durable };
    let read = recovered::<W>(&life.dir, policy, durable);
    let found = read.as_deref().unwrap_or_default();
    let expected = |n: usize| match written.get(n) {
        Some(before) => before.clone(),
        None => value(life.seed, n as u64),
    };
    let differs = found.iter().enumerate().position(|(n, found)| *found != expected(n));
    // From the first other value on, nothing that was written is there.
    let recovered = differs.unwrap_or(found.len()) as u64;
    let lost_age = match recovered < accepted {
        true => killed.saturating_sub(progress.accepted_at(recovered).map_err(failed)?),
        false => Duration::ZERO,
    };
    let lost_calls = accepted.saturating_sub(recovered);
    let survival = Survival { accepted: begun, durable, recovered, lost_calls, lost_age };
    run.survivals.push(survival);
    *written = read?;
    if let Some(n) = differs {
        return Err(format!("write {n} of {} has another value", written.len()));
    }
    survival.check(promise)
}

/// The values that recovery found, of which so many were durable.
fn recovered<W: Writer>(
    dir: &Path,
    policy: W::Policy,
    durable: u64,
) -> Result<Vec<Vec<u8>>, String> {
    let writer = W::open(dir, policy)?;
    let found = writer.read(durable)?;
    writer.close()?;
    Ok(found)
}

/// Kills the child after so many writes and this time, and returns when that was.
fn kill(
    mut child: Child,
    progress: &Progress,
    writes: u64,
    after: Duration,
) -> Result<Duration, String> {
    let began = Instant::now();
    let reached = loop {
        if progress.accepted().is_ok_and(|accepted| accepted >= writes) {
            break Ok(());
        }
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => break Err(format!("the writer ended by itself: {status}")),
            Err(error) => break Err(format!("failed to wait for the writer: {error}")),
        }
        if began.elapsed() > CHILD_TIMEOUT {
            break Err(format!("the writer did not reach write {writes} in {CHILD_TIMEOUT:?}"));
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    std::thread::sleep(after);
    let time = now();
    let ended = child.kill().and_then(|()| child.wait());
    reached?;
    let status = ended.map_err(|error| format!("failed to kill the writer: {error}"))?;
    // It may have died before, also of a panic or another signal.
    match status.signal() {
        Some(signal) if signal == Signal::KILL.as_raw() => Ok(time),
        _ => Err(format!("the writer ended by itself: {status}")),
    }
}
