//! The runs of a setting, on all processors.
//!
//! A run has a number, its seed, from which all of it follows. It goes through four lives of one
//! disk. The first is cut at a planned operation of a program, the second soon after its start,
//! which is in recovery as a rule, the third at a random place, and the last is closed and checked.
//! Runs come in groups of [`GROUP`] that share the program of the first life; they cut it before
//! each operation and in the middle of each, as far as the group reaches, and the rest of it cuts
//! at random.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

use esker_disk::sim::{CutPoint, Persist};
use esker_testkit::{SplitMix64, caught, mix};

use crate::outcome::{Outcome, Run};
use crate::plan::{How, PERSISTS, Plan};
use crate::promise::Promise;
use crate::subject::{Length, Subject};

/// Runs that share the program of their first life.
const GROUP: u64 = 512;
/// Cuts of a run.
const CUTS: u64 = 3;
/// Runs that a thread takes at once.
const CHUNK: u64 = 64;

/// How much to run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The seed of the first run; the next ones follow it.
    pub first_seed: u64,
    /// The number of runs of each setting. Each has 3 cuts.
    pub runs: u64,
}

impl Options {
    /// The runs that make at least this many cuts.
    pub fn cuts(first_seed: u64, cuts: u64) -> Self {
        Self { first_seed, runs: cuts.div_ceil(CUTS) }
    }
}

/// The runs with these seeds, in order.
pub(crate) fn runs_of<S: Subject>(policy: usize, seeds: &[u64]) -> Vec<Run> {
    let (_, policy, promise) = S::POLICIES[policy];
    let mut first: Option<First<S>> = None;
    let run = |seed: &u64| {
        let group = seed / GROUP;
        let shared = match first.take() {
            Some(shared) if shared.group == group => shared,
            _ => First::new(policy, group),
        };
        first.insert(shared).run(policy, promise, *seed)
    };
    seeds.iter().map(run).collect()
}

/// Goes through all runs, on all processors. The outcome depends on the options alone.
pub(crate) fn go_through(
    options: Options,
    promise: Promise,
    runs_of: &(dyn Fn(&[u64]) -> Vec<Run> + Sync),
    progress: &(dyn Fn(u64) + Sync),
) -> Outcome {
    let Options { first_seed, runs } = options;
    let (next, all) = (AtomicU64::new(0), Mutex::new(Outcome::default()));
    let work = || {
        loop {
            let start = next.fetch_add(CHUNK, Relaxed);
            if start >= runs {
                return;
            }
            let numbers = start..runs.min(start + CHUNK);
            let seeds: Vec<_> = numbers.map(|n| first_seed.wrapping_add(n)).collect();
            let mut part = Outcome::default();
            for run in runs_of(&seeds) {
                part.add(&run, promise);
            }
            progress(seeds.len() as u64);
            all.lock().unwrap_or_else(PoisonError::into_inner).merge(part, first_seed);
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get) as u64;
        for _ in 1..threads.min(runs.div_ceil(CHUNK)) {
            scope.spawn(work);
        }
        work();
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The program that a group of runs shares.
struct First<S: Subject> {
    group: u64,
    steps: Vec<S::Step>,
    /// Operations of the disk when nothing cuts it, or what kept the program from its end.
    operations: Result<u64, String>,
}

impl<S: Subject> First<S> {
    fn new(policy: S::Policy, group: u64) -> Self {
        let mut subject = S::new(policy, group);
        let steps = subject.program(&mut SplitMix64::new(mix(group, 1)), Length::Long);
        let operations = caught(|| subject.live_on(&steps)).map(|()| subject.disk().operations());
        Self { group, steps, operations }
    }

    fn run(&self, policy: S::Policy, promise: Promise, seed: u64) -> Run {
        let mut subject = S::new(policy, self.group);
        let mut cuts = 0;
        let outcome = caught(|| self.lives(&mut subject, seed, &mut cuts));
        let survivals = subject.survivals().to_vec();
        let kept = || survivals.iter().try_for_each(|survival| survival.check(promise));
        Run { seed, cuts, outcome: outcome.and_then(|()| kept()), survivals }
    }

    fn lives(&self, subject: &mut S, seed: u64, cuts: &mut u64) -> Result<(), String> {
        let operations = self.operations.clone()?;
        let mut rng = SplitMix64::new(mix(seed, 2));
        // An odd factor: the first runs of a group are spread over its program.
        let place = (seed % GROUP).wrapping_mul(197) % GROUP;
        let at = match place {
            _ if place < operations => CutPoint::Before(place),
            _ if place < 2 * operations => CutPoint::During(place - operations),
            _ => random_place(0, operations, &mut rng),
        };
        let mut die = |subject: &mut S, n: u32, steps: &[S::Step], at, persist| {
            let plan = Plan { at, how: How::Cut(persist) };
            *cuts += 1;
            let lived = subject.live_and_die(steps, plan);
            lived.map_err(|what| format!("life {n}, {plan}: {what}"))
        };
        die(subject, 1, &self.steps, at, rng.pick(&PERSISTS))?;
        for (n, span) in [(2, 30), (3, 90)] {
            let steps = subject.program(&mut rng, Length::Short);
            let at = random_place(subject.disk().operations(), span, &mut rng);
            die(subject, n, &steps, at, any_persist(&mut rng))?;
        }
        let steps = subject.program(&mut rng, Length::Short);
        subject.live_and_close(&steps).map_err(|what| format!("life 4: {what}"))
    }
}

fn any_persist(rng: &mut SplitMix64) -> Persist {
    if rng.percent(60) { Persist::Random } else { rng.pick(&PERSISTS) }
}

fn random_place(from: u64, span: u64, rng: &mut SplitMix64) -> CutPoint {
    let operation = from + rng.below(span.max(1));
    if rng.percent(40) { CutPoint::Before(operation) } else { CutPoint::During(operation) }
}
