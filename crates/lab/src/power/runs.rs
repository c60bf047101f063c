//! The runs of a setting.
//!
//! A run has a number, its seed, from which all of it follows. It goes through four lives of one
//! disk. The first is cut at a planned operation of a program, the second soon after its start,
//! which is in recovery as a rule, the third at a random place, and the last is closed and checked.
//! Runs come in groups of [`GROUP_RUNS`]. Every other run of a group has a program of its own,
//! which is cut at a random operation. The rest share the program of the first life; they cut it
//! before each operation and in the middle of each, as far as the group reaches, and then at
//! random.

use esker_disk::sim::{CutPoint, Persist};
use esker_testkit::{SplitMix64, caught, mix};

use crate::outcome::Run;
use crate::plan::{How, PERSISTS, Plan, after_cuts, random_place};
use crate::promise::Promise;
use crate::subject::{Length, Subject};

/// The runs of a group.
const GROUP_RUNS: u64 = 1024;
/// The runs of a group that share the program of their first life.
const SHARED_RUNS: u64 = GROUP_RUNS / 2;

/// The runs with these seeds, in order.
pub(crate) fn runs_of<S: Subject>(policy: usize, seeds: &[u64]) -> Vec<Run> {
    let (_, policy, promise) = S::POLICIES[policy];
    let mut first: Option<First<S>> = None;
    let run = |seed: &u64| {
        let group = seed / GROUP_RUNS;
        let shared = match first.take() {
            Some(shared) if shared.group == group => shared,
            _ => First::new(policy, group),
        };
        first.insert(shared).run(policy, promise, *seed)
    };
    seeds.iter().map(run).collect()
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
        // A program of its own has options of its own.
        let mut subject = S::new(policy, if shares(seed) { self.group } else { seed });
        let mut cuts = Vec::new();
        let outcome = caught(|| self.lives(&mut subject, seed, &mut cuts));
        let survivals = subject.survivals().to_vec();
        let kept = || survivals.iter().try_for_each(|survival| survival.check(promise));
        let outcome = outcome.and_then(|()| kept()).map_err(|what| after_cuts(&cuts, &what));
        Run { seed, cuts: cuts.len() as u64, outcome, survivals }
    }

    fn lives(&self, subject: &mut S, seed: u64, cuts: &mut Vec<Plan>) -> Result<(), String> {
        let operations = self.operations.clone()?;
        let mut rng = SplitMix64::new(mix(seed, 2));
        let own = (!shares(seed)).then(|| subject.program(&mut rng, Length::Long));
        // An odd factor: the first runs of a group are spread over its program.
        let place = (seed % GROUP_RUNS / 2).wrapping_mul(197) % SHARED_RUNS;
        let at = match place {
            _ if own.is_some() => random_place(0, operations, &mut rng),
            _ if place < operations => CutPoint::Before(place),
            _ if place < 2 * operations => CutPoint::During(place - operations),
            _ => random_place(0, operations, &mut rng),
        };
        let mut die = |subject: &mut S, steps: &[S::Step], at, persist| {
            let plan = Plan { at, how: How::Cut(persist) };
            subject.live_and_die(steps, plan)?;
            cuts.push(plan);
            Ok::<_, String>(())
        };
        die(subject, own.as_ref().unwrap_or(&self.steps), at, rng.pick(&PERSISTS))?;
        for span in [30, 90] {
            subject.change_options(&mut rng);
            let steps = subject.program(&mut rng, Length::Short);
            let at = random_place(subject.disk().operations(), span, &mut rng);
            die(subject, &steps, at, any_persist(&mut rng))?;
        }
        subject.change_options(&mut rng);
        let steps = subject.program(&mut rng, Length::Short);
        subject.live_and_close(&steps)
    }
}

/// Whether a run shares the program of its group.
fn shares(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

fn any_persist(rng: &mut SplitMix64) -> Persist {
    if rng.percent(60) { Persist::Random } else { rng.pick(&PERSISTS) }
}
