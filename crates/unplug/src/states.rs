//! The check of a recording's states, until one is refused, and the smallest loss that shows it.

use anyhow::Result;

use crate::arguments::{
    CheckArguments, JOBS_DEFAULT, JOBS_MAX, SEED_DEFAULT, STATES_DEFAULT, STATES_MAX,
};
use crate::check::command::{Check, CheckResult};
use crate::check::pool::{CheckPool, Refused, StateToCheck};
use crate::model::directory::DirectoryState;
use crate::model::ext4::allowed;
use crate::model::loss::Loss;
use crate::record::recording::Recording;
use crate::rng::Rng;
use crate::search::candidates::{self, Candidate, Candidates};
use crate::search::random::SectorWrites;
use crate::search::shrink::shrink;

/// The number of states, and how they are found.
#[derive(Clone, Debug)]
pub struct Search {
    /// The most different states to check, at most 10,000,000.
    pub states: usize,
    /// The seed of the states that are drawn.
    pub seed: u64,
    /// The number of checks that run at once, 1 to 256.
    pub jobs: usize,
    /// Whether the disk writes each sector of 512 bytes whole or not at all, as many disks promise.
    /// Then no sector is torn.
    pub whole_sectors: bool,
}

/// How often states are drawn when the earlier draws had too few new ones.
const DRAWS_MAX: usize = 8;

/// The result of the checks of all states.
#[derive(Debug)]
pub enum Outcome {
    /// The check fails on the directory as the program left it.
    CheckBroken,
    /// All states pass; whether the classes of all cuts were among them.
    Passed { complete: bool },
    /// The smallest loss that the check refuses, and how it ended first.
    Refused(Refused),
}

/// The checks of a recording.
pub struct StateChecks<'a> {
    pub recording: &'a Recording,
    pub pool: &'a CheckPool<'a>,
    /// The number of states checked so far.
    pub checked: usize,
}

impl StateChecks<'_> {
    /// Checks the classes of all cuts, then states from the seed.
    pub fn run(&mut self, search: &Search) -> Result<Outcome> {
        if !self.passes_uncut()? {
            return Ok(Outcome::CheckBroken);
        }
        let mut candidates = Candidates::default();
        let (classes, complete) = candidates.find_in_classes(self.recording, search.states);
        let marked = candidates::marked_cuts(self.recording);
        let (first, others) = classes.into_iter().partition(|state| marked.contains(&state.cut));
        let mut refused = self.check_all(first)?;
        if refused.is_none() {
            refused = self.check_all(others)?;
        }
        let mut rng = Rng::new(search.seed);
        for _ in 0..DRAWS_MAX {
            let left = search.states.saturating_sub(self.checked);
            if refused.is_some() || left == 0 {
                break;
            }
            let drawn = candidates.draw(self.recording, &mut rng, left, search.sector_writes());
            refused = self.check_all(drawn)?;
        }
        Ok(match refused {
            Some(refused) => Outcome::Refused(self.shrink(refused)),
            None => Outcome::Passed { complete },
        })
    }

    fn passes_uncut(&self) -> Result<bool> {
        let disk = candidates::disk_at(self.recording, self.recording.events.len());
        let state = DirectoryState::new(&disk, &Loss::default());
        Ok(self.pool.check_one(&state, disk.output.len())? == CheckResult::Passed)
    }

    /// Checks states in the order of their cuts, until one is refused.
    fn check_all(&mut self, mut states: Vec<Candidate>) -> Result<Option<Refused>> {
        states.sort_by_key(|candidate| candidate.cut);
        let result = self.pool.check_all(|send| {
            let mut states = states.into_iter().peekable();
            candidates::visit_cuts(self.recording, |cut, disk| {
                while let Some(candidate) = states.next_if(|state| state.cut == cut) {
                    let state = DirectoryState::new(disk, &candidate.loss);
                    if !send(StateToCheck { candidate, state, output_bytes: disk.output.len() }) {
                        return false;
                    }
                }
                states.peek().is_some()
            });
        })?;
        self.checked += result.checked;
        Ok(result.refused)
    }

    fn shrink(&self, refused: Refused) -> Refused {
        let Candidate { cut, loss } = refused.candidate;
        let disk = candidates::disk_at(self.recording, cut);
        let fails = |loss: &Loss| {
            if allowed(&disk, loss.clone()) != *loss {
                return false;
            }
            let state = DirectoryState::new(&disk, loss);
            let result = self.pool.check_one(&state, disk.output.len());
            result.is_ok_and(|result| result != CheckResult::Passed)
        };
        let loss = shrink(loss, fails);
        Refused { candidate: Candidate { cut, loss }, result: refused.result }
    }
}

impl Search {
    /// Returns the search with numbers in their limits.
    pub(crate) fn within_limits(self) -> Self {
        let (states, jobs) = (self.states.min(STATES_MAX), self.jobs.clamp(1, JOBS_MAX));
        Self { states, jobs, ..self }
    }

    fn sector_writes(&self) -> SectorWrites {
        if self.whole_sectors { SectorWrites::Whole } else { SectorWrites::Torn }
    }
}

impl Default for Search {
    fn default() -> Self {
        Self {
            states: STATES_DEFAULT,
            seed: SEED_DEFAULT,
            jobs: JOBS_DEFAULT,
            whole_sectors: false,
        }
    }
}

impl From<&CheckArguments> for Search {
    fn from(arguments: &CheckArguments) -> Self {
        Self {
            states: arguments.states,
            seed: arguments.seed,
            jobs: arguments.jobs,
            whole_sectors: arguments.whole_sectors,
        }
    }
}

/// The check of the arguments; `None` when there is none.
pub fn check_of(arguments: &CheckArguments) -> Option<Check> {
    let command = arguments.check.clone()?;
    let timeout = std::time::Duration::from_secs(arguments.check_timeout);
    Some(Check { command, timeout })
}
