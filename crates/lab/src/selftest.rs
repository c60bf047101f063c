//! The self-test of the lab: each planted bug has to be caught.

use esker_disk::planted::{Bug, Planted, plant};

use crate::faults::disk_faults;
use crate::power::power_cuts;
use crate::setting::Setting;
use crate::simulation::{Options, Simulation};

/// Runs of each simulation in the first round. Each further round has twice as many.
const RUNS: u64 = 8;
/// Rounds until a bug counts as escaped.
const ROUNDS: u32 = 8;

/// What came of a planted bug.
#[derive(Debug, Clone)]
pub struct Found {
    /// The name of the bug.
    pub bug: &'static str,
    /// Power cuts made until it was caught, those of instruments that did not see it too.
    pub cuts: u64,
    /// Runs made until then.
    pub runs: u64,
    /// What caught it; `None` if it escaped, or if the run that failed fails without it, too.
    pub by: Option<Catch>,
}

/// How a bug was caught.
#[derive(Debug, Clone)]
pub struct Catch {
    /// Instrument, component and policy.
    pub setting: Setting,
    /// The seed of the run.
    pub seed: u64,
    /// The promise that was broken.
    pub what: String,
}

/// The names of all bugs that can be planted.
pub fn bugs() -> Vec<&'static str> {
    Bug::ALL.iter().map(|bug| bug.name()).collect()
}

fn named(name: &str) -> Option<Bug> {
    Bug::ALL.iter().find(|bug| bug.name() == name).copied()
}

/// Plants a bug in this process until what this returns is dropped. `None` if no bug has this name.
pub fn planted(name: &str) -> Option<Planted> {
    named(name).map(plant)
}

/// Plants a bug and goes through all instruments, in rounds, until one catches it. `None` if no bug
/// has this name.
///
/// The bug is in the whole process: no other thread may use the components meanwhile.
pub fn hunt(name: &str) -> Option<Found> {
    let bug = named(name)?;
    let instruments: Vec<Simulation> = power_cuts().into_iter().chain(disk_faults()).collect();
    let planted = plant(bug);
    let mut found = Found { bug: bug.name(), cuts: 0, runs: 0, by: None };
    let (mut first_seed, mut runs) = (1, RUNS);
    for _ in 0..ROUNDS {
        for simulation in &instruments {
            // Its syncs are held for some time.
            let is_slow = simulation.setting.instrument == "stalled_sync";
            let runs = if is_slow { RUNS / 4 } else { runs };
            let outcome = simulation.run(Options { first_seed, runs }, &|_| {});
            found.cuts += outcome.statistics.cuts;
            found.runs += outcome.statistics.runs;
            if let Some(violation) = outcome.examples.into_iter().next() {
                // What fails without the bug, too, says nothing about it.
                drop(planted);
                let alone = Options { first_seed: violation.seed, runs: 1 };
                let is_caught = simulation.run(alone, &|_| {}).violations == 0;
                found.by = is_caught.then_some(Catch {
                    setting: simulation.setting,
                    seed: violation.seed,
                    what: violation.what,
                });
                return Some(found);
            }
        }
        // Seeds that are far apart begin with other programs.
        (first_seed, runs) = (first_seed + 4096, 2 * runs);
    }
    Some(found)
}
