//! The trial of a component on each kind of disk.

use esker_log::Policy;

use crate::log::SYNC_PERIOD;
use crate::log::config::batch;
use crate::outcome::Run;
use crate::promise::Promise;
use crate::setting::Policies;

/// How many calls or which time a fault takes is not promised.
pub(super) const POLICIES: Policies<Policy> = &[
    ("always", Policy::Always, Promise::Nothing),
    ("batch_5", batch(), Promise::Nothing),
    ("periodic_10ms", Policy::Periodic(SYNC_PERIOD), Promise::Nothing),
    ("os", Policy::OsBuffered, Promise::Nothing),
];

/// A kind of disk, and what is done on it.
pub(super) trait Trial {
    /// The lives of one disk.
    fn lives(policy: Policy, run: &mut Run) -> Result<(), String>;
}

pub(super) fn runs_of<T: Trial>(policy: usize, seeds: &[u64]) -> Vec<Run> {
    let (_, policy, promise) = POLICIES[policy];
    let run = |seed: &u64| {
        let mut run = Run::catch(*seed, |run| T::lives(policy, run));
        let kept = run.survivals.iter().try_for_each(|survival| survival.check(promise));
        run.outcome = run.outcome.and(kept);
        run
    };
    seeds.iter().map(run).collect()
}
