//! Power cuts under a program of your own.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use esker_disk::Disk;
use esker_disk::sim::{CutPoint, SimDisk};
use esker_testkit::{SplitMix64, mix};

use crate::outcome::{Outcome, Run};
use crate::plan::{How, PERSISTS, Plan, Stop, after_cuts, random_place};
use crate::promise::Promise;
use crate::simulation::{Options, go_through};
use crate::survival::Survival;

/// The error of a program.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A program that keeps its state on a disk.
///
/// The lab gives it a simulated disk, cuts the power anywhere, and compares the state that it finds
/// afterwards with those that it reported: it must be one that followed the last durable change, or
/// that change itself.
///
/// Two things make a run repeat exactly: a manual engine
/// ([`Engine::manual`](esker_log::Engine::manual)), so that everything happens on one thread, and
/// no source of randomness but `seed`.
pub trait Program: Sync {
    /// The state of the program, in a form that can be compared.
    type State: Clone + PartialEq + Debug;

    /// The state before the first life.
    fn empty(&self) -> Self::State;

    /// Runs a life: opens what is on the disk, and changes it as `seed` says. Reports every change
    /// to `changes`. The power may fail at any call; then the disk refuses everything else.
    ///
    /// # Errors
    /// Any error once the power is off. An error while it is on fails the run.
    fn live(
        &self,
        disk: Arc<dyn Disk>,
        seed: u64,
        changes: &mut Changes<Self::State>,
    ) -> Result<(), BoxError>;

    /// Opens what is on the disk and reads all of it. The power may fail here, too.
    ///
    /// # Errors
    /// As [`Program::live`].
    fn read(&self, disk: Arc<dyn Disk>) -> Result<Self::State, BoxError>;
}

/// The changes of a program, as it reports them.
#[derive(Debug)]
pub struct Changes<S> {
    /// The states from the last durable one on.
    states: Vec<S>,
    /// Changes before these.
    before: u64,
}

impl<S: Clone + PartialEq + Debug> Changes<S> {
    fn new(empty: S) -> Self {
        Self { states: vec![empty], before: 0 }
    }

    /// The state after the last change.
    pub fn state(&self) -> &S {
        &self.states[self.states.len() - 1]
    }

    /// Reports a change that is about to be made, with the state after it. A crash may find it or
    /// not, until it is reported as durable.
    pub fn begin(&mut self, after: S) {
        self.states.push(after);
    }

    /// Reports that all changes so far are durable: no crash may take them back.
    pub fn durable(&mut self) {
        let last = self.states.len() - 1;
        self.states.drain(..last);
        self.before += last as u64;
    }

    /// Compares the state after a crash, and continues from it. A state that no change led to
    /// counts as if nothing had been recovered.
    fn recovered(&mut self, found: S, survivals: &mut Vec<Survival>) -> Result<(), String> {
        let kept = self.states.iter().rposition(|state| *state == found);
        let accepted = self.before + self.states.len() as u64 - 1;
        let recovered = kept.map_or(0, |kept| self.before + kept as u64);
        survivals.push(Survival {
            accepted,
            durable: self.before,
            recovered,
            lost_calls: accepted - recovered,
            ..Survival::default()
        });
        if kept.is_none() {
            let durable = &self.states[0];
            return Err(match self.states.len() - 1 {
                0 => format!("{found:?} was recovered, and {durable:?} was durable"),
                later => format!(
                    "{found:?} was recovered, which is neither the durable state {durable:?} nor \
                     that after one of the {later} changes since"
                ),
            });
        }
        self.states = vec![found];
        self.before = recovered;
        Ok(())
    }
}

/// Cuts the power under a program, on all processors. Each run has a disk of its own and three
/// cuts: in the first life at one operation of the disk, in the second soon after its start, and in
/// the third anywhere. With at least twice as many runs as the first life has operations, each of
/// them is cut, before it and in the middle. The outcome names the seeds of runs that lost
/// something.
///
/// ```
/// use std::sync::Arc;
///
/// use esker_disk::Disk;
/// use esker_lab::{BoxError, Changes, Options, Program, cut_power};
/// use esker_log::{Engine, Log, OpenError, Start};
///
/// /// Appends numbers to a log.
/// struct Numbers;
///
/// fn open(disk: Arc<dyn Disk>) -> Result<Log, OpenError> {
///     Log::builder("numbers").disk(disk).engine(Engine::manual()).open()
/// }
///
/// impl Program for Numbers {
///     type State = u64;
///
///     fn empty(&self) -> u64 {
///         0
///     }
///
///     fn live(
///         &self,
///         disk: Arc<dyn Disk>,
///         seed: u64,
///         changes: &mut Changes<u64>,
///     ) -> Result<(), BoxError> {
///         let log = open(disk)?;
///         for _ in 0..5 + seed % 5 {
///             changes.begin(changes.state() + 1);
///             log.append("one more")?.blocking_wait()?;
///             changes.durable();
///         }
///         Ok(())
///     }
///
///     fn read(&self, disk: Arc<dyn Disk>) -> Result<u64, BoxError> {
///         Ok(open(disk)?.durable().0)
///     }
/// }
///
/// let outcome = cut_power(&Numbers, Options { first_seed: 1, runs: 40 });
/// assert_eq!(outcome.violations, 0, "{:?}", outcome.examples);
/// assert!(outcome.statistics.durable > 0);
/// ```
pub fn cut_power<P: Program>(program: &P, options: Options) -> Outcome {
    let runs_of = |seeds: &[u64]| {
        let run = |seed: &u64| Run::catch(*seed, |run| lives(program, run));
        seeds.iter().map(run).collect()
    };
    go_through(options, Promise::Nothing, &runs_of, &|_| {})
}

/// The first lives of all runs do the same, so that their cuts go through all of it.
const FIRST_SEED: u64 = 1;

fn lives<P: Program>(program: &P, run: &mut Run) -> Result<(), String> {
    let seed = run.seed;
    let mut rng = SplitMix64::new(mix(seed, 3));
    let disk = SimDisk::new(seed);
    let mut changes = Changes::new(program.empty());
    let operations = rehearse(program, &disk.fork(seed))?;
    let in_turn = spread(seed, 2 * operations);
    let first = match in_turn % 2 {
        0 => CutPoint::Before(in_turn / 2),
        _ => CutPoint::During(in_turn / 2),
    };
    let mut cuts = Vec::new();
    for life in 1..=3 {
        let start = disk.operations();
        let at = match life {
            1 => first,
            2 => random_place(start, 30, &mut rng),
            _ => random_place(start, 2 * operations, &mut rng),
        };
        let plan = Plan { at, how: How::Cut(rng.pick(&PERSISTS)) };
        let steps = if life == 1 { FIRST_SEED } else { rng.next() };
        let ended = one_life(program, &disk, plan, steps, &mut changes, run);
        ended.map_err(|what| after_cuts(&cuts, &what))?;
        cuts.push(plan);
        run.cuts += 1;
        disk.power_on();
    }
    let read = program.read(Arc::new(disk.process())).map_err(|error| error.to_string());
    read.and_then(|found| changes.recovered(found, &mut run.survivals))
        .map_err(|what| after_cuts(&cuts, &what))
}

/// A place for each seed: consecutive seeds are far apart, and so many take each place once.
fn spread(seed: u64, places: u64) -> u64 {
    let mut stride = places * 3 / 5 + 1;
    while gcd(stride, places) > 1 {
        stride += 1;
    }
    (seed % places).wrapping_mul(stride) % places
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the number of operations of the first life, at least 1.
fn rehearse<P: Program>(program: &P, disk: &SimDisk) -> Result<u64, String> {
    let failed = |error: BoxError| format!("without any crash: {error}");
    let empty = program.read(Arc::new(disk.process())).map_err(failed)?;
    if empty != program.empty() {
        return Err(format!("{empty:?} was found on an empty disk"));
    }
    let mut changes = Changes::new(empty);
    program.live(Arc::new(disk.process()), FIRST_SEED, &mut changes).map_err(failed)?;
    if changes.before == 0 && changes.states.len() == 1 {
        return Err("the first life reported no change, and so nothing is tested".into());
    }
    let operations = disk.operations().max(1);
    let found = program.read(Arc::new(disk.process())).map_err(|error| error.to_string())?;
    if found != *changes.state() {
        let state = changes.state();
        return Err(format!("without any crash {found:?} was found, which should be {state:?}"));
    }
    Ok(operations)
}

/// Reads what the last crash left, and lives on until the power fails.
fn one_life<P: Program>(
    program: &P,
    disk: &SimDisk,
    plan: Plan,
    steps: u64,
    changes: &mut Changes<P::State>,
    run: &mut Run,
) -> Result<(), String> {
    let stop = |error: BoxError| match disk.is_on() {
        true => Stop::Broken(error.to_string()),
        false => Stop::Ended,
    };
    plan.end(disk, || {
        let found = program.read(Arc::new(disk.process())).map_err(stop)?;
        if run.cuts > 0 {
            changes.recovered(found, &mut run.survivals).map_err(Stop::Broken)?;
        }
        program.live(Arc::new(disk.process()), steps, changes).map_err(stop)
    })
}
