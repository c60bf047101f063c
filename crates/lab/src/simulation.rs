//! A setting on a simulated disk, and its runs on all processors.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::outcome::{Outcome, Run};
use crate::promise::Promise;
use crate::setting::Setting;

/// The most runs that a thread takes at once.
const CHUNK_RUNS: u64 = 64;

/// How much to run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The seed of the first run; the next ones follow it.
    pub first_seed: u64,
    /// The number of runs of each setting.
    pub runs: u64,
}

/// A setting on a simulated disk.
#[derive(Debug, Clone, Copy)]
pub struct Simulation {
    /// The component, its policy, and what happens to it.
    pub setting: Setting,
    pub(crate) runs_of: RunsOf,
}

/// Makes the runs of the policy with this index, one for each seed.
pub(crate) type RunsOf = fn(usize, &[u64]) -> Vec<Run>;

impl Simulation {
    /// Goes through the runs, on all processors. The outcome depends on the options alone, except
    /// that of `stalled_sync`, which needs real threads. `progress` gets the number of further runs
    /// that are done.
    pub fn run(&self, options: Options, progress: &(dyn Fn(u64) + Sync)) -> Outcome {
        let runs_of = |seeds: &[u64]| (self.runs_of)(self.setting.index, seeds);
        go_through(options, self.setting.promise, &runs_of, progress)
    }
}

/// Goes through all runs, on all processors.
pub(crate) fn go_through(
    options: Options,
    promise: Promise,
    runs_of: &(dyn Fn(&[u64]) -> Vec<Run> + Sync),
    progress: &(dyn Fn(u64) + Sync),
) -> Outcome {
    let Options { first_seed, runs } = options;
    let (next, all) = (AtomicU64::new(0), Mutex::new(Outcome::default()));
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get) as u64;
    let chunk = (runs / (4 * threads)).clamp(1, CHUNK_RUNS);
    let work = || {
        loop {
            let start = next.fetch_add(chunk, Relaxed);
            if start >= runs {
                return;
            }
            let numbers = start..runs.min(start + chunk);
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
        for _ in 1..threads.min(runs.div_ceil(chunk)) {
            scope.spawn(work);
        }
        work();
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}
