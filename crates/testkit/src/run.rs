//! The runner of many cases: on all processors, with hang detection and minimised failures.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use esker_disk::sim::seed_from_env;

use crate::changes::Changes;
use crate::files::Files;
use crate::mutation::Mutation;
use crate::panics::caught;
use crate::plan::{Source, plan, plan_of_sequence};
use crate::rng::Rng;

/// Cases that share a directory.
pub const GROUP_CASES: u64 = 24;
/// A case that takes longer counts as hanging.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of distinct failures that ends a run.
const FAILURES_MAX: usize = 40;

/// A component under test.
pub trait Component: Sync {
    /// A directory of a closed or crashed component, and what is known of it.
    type Sample;

    /// Builds a directory. Undamaged, it must hold what this component guarantees.
    ///
    /// # Errors
    /// A sentence names the guarantee that the directory breaks.
    fn sample(&self, seed: u64) -> Result<Self::Sample, String>;

    /// Returns the sample's directory, and the material for planning mutations of it.
    fn source<'a>(&self, sample: &'a Self::Sample) -> &'a Source;

    /// Checks the component's answers against what is known. Returns a word for the result of the
    /// case.
    ///
    /// # Errors
    /// The guarantee that was violated.
    fn check(
        &self,
        sample: &Self::Sample,
        damaged: &Files,
        changes: &Changes,
        rng: &mut Rng,
    ) -> Result<&'static str, String>;
}

/// The plan of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plans {
    /// Any bytes and files.
    Any,
    /// Mutations of files of a sequence that hold one another, in one case of three.
    Sequences,
}

impl Plans {
    fn mutations(self, source: &Source, case: u64) -> Vec<Mutation> {
        if self == Self::Sequences && Rng::new(case, 3).percent(33) {
            return plan_of_sequence(source, &mut Rng::new(case, 4));
        }
        plan(source, &mut Rng::new(case, 1))
    }
}

/// The range of cases and their reporting.
#[derive(Debug, Clone)]
struct Runs {
    /// The name of the test, for messages.
    name: &'static str,
    /// The first case.
    first: u64,
    /// The number of cases.
    cases: u64,
    plans: Plans,
    /// Whether progress is printed.
    prints_progress: bool,
}

impl Runs {
    /// Returns `cases` cases, unless the environment overrides them: `ESKER_SOAK` sets their number
    /// and `ESKER_SEED` the first.
    fn from_env(name: &'static str, cases: u64) -> Self {
        let soak = seed_from_env("ESKER_SOAK", 0);
        let first = seed_from_env("ESKER_SEED", 1 << 21);
        let cases = if soak > 0 { soak } else { cases };
        Self { name, first, cases, plans: Plans::Sequences, prints_progress: soak > 0 }
    }
}

/// The current case of a worker, for the watchdog.
struct CurrentCase {
    case: AtomicU64,
    /// Milliseconds since the run began.
    since: AtomicU64,
}

struct RunState<'a> {
    runs: &'a Runs,
    began: Instant,
    next: AtomicU64,
    ended: AtomicBool,
    done: AtomicU64,
    results: Mutex<Results>,
}

#[derive(Default)]
struct Results {
    words: BTreeMap<&'static str, u64>,
    /// The number of failures of each kind, and the first one.
    failures: BTreeMap<String, (usize, String)>,
}

/// Runs the cases, and returns how often each result word occurred. An error has the failures,
/// each kind once, with a minimal set of mutations and the command that repeats it.
fn run<C: Component>(component: &C, runs: &Runs) -> Result<BTreeMap<&'static str, u64>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let shared = RunState {
        runs,
        began: Instant::now(),
        next: AtomicU64::new(runs.first),
        ended: AtomicBool::new(false),
        done: AtomicU64::new(0),
        results: Mutex::default(),
    };
    let positions: Vec<_> = (0..threads)
        .map(|_| CurrentCase { case: AtomicU64::new(0), since: AtomicU64::new(u64::MAX) })
        .collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            positions.iter().map(|at| scope.spawn(|| shared.work(component, at))).collect();
        let watch = scope.spawn(|| shared.watch(&positions));
        for worker in workers {
            // A panic of a worker outside of a case is a bug in the runner.
            if worker.join().is_err() {
                shared.fail(0, "the runner failed".into());
            }
        }
        shared.ended.store(true, Relaxed);
        watch.thread().unpark();
    });
    shared.report_progress();
    let results = shared.results.into_inner().unwrap_or_else(PoisonError::into_inner);
    if results.failures.is_empty() {
        return Ok(results.words);
    }
    let mut reported = format!("{} kinds of failure:", results.failures.len());
    for (count, first) in results.failures.values() {
        let _ = write!(reported, "\n\n{count} x {first}");
    }
    Err(reported)
}

/// Runs new cases: `cases` of them, unless the environment overrides it. Each of the common
/// results must be frequent; otherwise nothing was tried.
///
/// # Errors
/// The failures, each kind once, with a minimal set of mutations and the command that repeats it;
/// or how often each result word occurred.
pub fn run_new<C: Component>(component: &C, name: &'static str, cases: u64) -> Result<(), String> {
    let runs = Runs::from_env(name, cases);
    let words = run(component, &runs)?;
    println!("{words:?}");
    let frequent = |word| words.get(word).is_some_and(|count| *count > 10);
    if runs.cases >= cases && !["whole", "reported", "repaired"].into_iter().all(frequent) {
        return Err(format!("a result is too rare: {words:?}"));
    }
    Ok(())
}

/// Runs cases that failed once, each with what was wrong, with the plans that they had then.
///
/// # Errors
/// The first failure, with what was wrong before.
pub fn run_past<C: Component>(
    component: &C,
    name: &'static str,
    plans: Plans,
    cases: &[(u64, &str)],
) -> Result<(), String> {
    cases.iter().try_for_each(|(first, what)| {
        let runs = Runs { name, first: *first, cases: 1, plans, prints_progress: false };
        run(component, &runs).map(drop).map_err(|failure| format!("{what}: {failure}"))
    })
}

impl RunState<'_> {
    /// Runs groups of cases until none are left.
    fn work<C: Component>(&self, component: &C, at: &CurrentCase) {
        let end = self.runs.first.saturating_add(self.runs.cases);
        loop {
            let group = |case: u64| case / GROUP_CASES;
            let taken = self.next.fetch_update(Relaxed, Relaxed, |next| {
                (next < end).then(|| ((group(next) + 1) * GROUP_CASES).min(end))
            });
            let Ok(first) = taken else { return };
            let cases = first..((group(first) + 1) * GROUP_CASES).min(end);
            at.begins(first, self.began);
            match caught(|| component.sample(group(first))) {
                Ok(sample) => {
                    for case in cases {
                        at.begins(case, self.began);
                        self.case(component, &sample, case);
                        self.done.fetch_add(1, Relaxed);
                        if self.has_enough() {
                            break;
                        }
                    }
                }
                Err(what) => self.fail(first, format!("undamaged: {what}")),
            }
            at.since.store(u64::MAX, Relaxed);
            if self.has_enough() {
                return;
            }
        }
    }

    fn case<C: Component>(&self, component: &C, sample: &C::Sample, case: u64) {
        let source = component.source(sample);
        let mutations = self.runs.plans.mutations(source, case);
        let outcome = |mutations: &[Mutation]| {
            let mut damaged = source.files.clone();
            mutations.iter().for_each(|mutation| mutation.apply(&mut damaged));
            let changes = Changes::between(&source.files, &damaged);
            caught(|| component.check(sample, &damaged, &changes, &mut Rng::new(case, 2)))
        };
        match outcome(&mutations) {
            Ok(word) => {
                let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
                *results.words.entry(word).or_default() += 1;
            }
            Err(what) => {
                let (mutations, what) = fewest(mutations, what, outcome);
                let list: String =
                    mutations.iter().map(|mutation| format!("\n  {mutation}")).collect();
                self.fail(case, format!("{what}{list}"));
            }
        }
    }

    fn fail(&self, case: u64, what: String) {
        let first_line = what.lines().next().unwrap_or_default();
        let kind: String = first_line.chars().filter(|c| !c.is_ascii_digit()).collect();
        let again = format!("cargo xtask soak --only {} --cases 1 --seed {case}", self.runs.name);
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = results.failures.entry(kind).or_default();
        failure.0 += 1;
        if failure.1.is_empty() {
            failure.1 = format!("{what}\n  again: {again}");
            if self.runs.prints_progress {
                println!("FAILED {}", failure.1);
            }
        }
    }

    fn has_enough(&self) -> bool {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.failures.len() >= FAILURES_MAX
    }

    /// Aborts the process when a case hangs, and prints progress.
    fn watch(&self, positions: &[CurrentCase]) {
        let mut reported = Instant::now();
        while !self.ended.load(Relaxed) {
            std::thread::park_timeout(Duration::from_millis(200));
            let now = millis(self.began);
            for at in positions {
                let since = at.since.load(Relaxed);
                if since != u64::MAX && now.saturating_sub(since) > CASE_TIMEOUT.as_millis() as u64
                {
                    let case = at.case.load(Relaxed);
                    eprintln!("{} case {case} HANGS (for {CASE_TIMEOUT:?})", self.runs.name);
                    std::process::abort();
                }
            }
            if self.runs.prints_progress && reported.elapsed() > Duration::from_secs(5) {
                reported = Instant::now();
                self.report_progress();
            }
        }
    }

    fn report_progress(&self) {
        if !self.runs.prints_progress {
            return;
        }
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, took) = (self.done.load(Relaxed), self.began.elapsed());
        let failed: usize = results.failures.values().map(|(count, _)| count).sum();
        println!(
            "{}: {done} of {} cases in {:.0} s, {failed} failed, {:?}",
            self.runs.name,
            self.runs.cases,
            took.as_secs_f64(),
            results.words
        );
    }
}

impl CurrentCase {
    fn begins(&self, case: u64, began: Instant) {
        self.case.store(case, Relaxed);
        self.since.store(millis(began), Relaxed);
    }
}

fn millis(began: Instant) -> u64 {
    began.elapsed().as_millis() as u64
}

/// Removes mutations while the case still fails. Returns the rest and its failure.
fn fewest(
    mutations: Vec<Mutation>,
    what: String,
    outcome: impl Fn(&[Mutation]) -> Result<&'static str, String>,
) -> (Vec<Mutation>, String) {
    let (mut least, mut reported) = (mutations, what);
    'smaller: loop {
        for left_out in 0..least.len() {
            let mut fewer = least.clone();
            fewer.remove(left_out);
            if let Err(what) = outcome(&fewer) {
                (least, reported) = (fewer, what);
                continue 'smaller;
            }
        }
        return (least, reported);
    }
}
