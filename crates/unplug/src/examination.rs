//! The answer for a recording: what its program could lose, or the verdict of a check.

use std::path::{Path, PathBuf};

use anyhow::Result;
use indicatif::ProgressBar;

use crate::check::command::{CheckResult, StateCheck};
use crate::check::pool::CheckPool;
use crate::model::directory::DirectoryState;
use crate::record::recording::{Event, Recording};
use crate::report::answer::{Answer, FailingState};
use crate::report::losable::losable;
use crate::report::sentence::sentence;
use crate::report::verdict::Verdict;
use crate::search::candidates;
use crate::states::{Outcome, Search, StateChecks};

/// A recording, and how its states are checked.
pub struct Examination<'a> {
    pub recording: &'a Recording,
    /// `None` lists what is losable.
    pub check: Option<&'a dyn StateCheck>,
    pub search: Search,
    /// A folder for the states, on a file system in memory.
    pub states: &'a Path,
    /// Makes the folder of a failing state, which stays.
    pub kept: &'a dyn Fn() -> Result<PathBuf>,
    /// Counts the states that were checked.
    pub progress: ProgressBar,
}

impl Examination<'_> {
    pub fn answer(&self) -> Result<Answer> {
        let mut answer = Answer::new(self.recording);
        if self.recording.requests() == 0 {
            answer.note("the program changed nothing in its directory");
            return Ok(answer);
        }
        match self.check {
            None => self.list_losable(&mut answer),
            Some(check) => self.check_states(check, &mut answer)?,
        }
        if answer.verdict == Verdict::Kept && !self.recording.events.contains(&Event::Success) {
            answer.verdict = Verdict::NotMeasured;
            answer.note("the program failed, or was ended");
        }
        Ok(answer)
    }

    fn list_losable(&self, answer: &mut Answer) {
        answer.losable = losable(self.recording).iter().map(ToString::to_string).collect();
        answer.verdict = match answer.losable.is_empty() {
            true => Verdict::Kept,
            false => Verdict::Lost,
        };
    }

    fn check_states(&self, check: &dyn StateCheck, answer: &mut Answer) -> Result<()> {
        let recording = self.recording;
        let output = candidates::disk_at(recording, recording.events.len()).output;
        let pool = CheckPool {
            check,
            nodes: &recording.nodes,
            output: &output,
            folder: self.states,
            jobs: self.search.jobs.max(1),
            progress: &self.progress,
        };
        let mut checks = StateChecks { recording, pool: &pool, checked: 0 };
        let outcome = checks.run(&self.search)?;
        self.progress.finish_and_clear();
        answer.states = checks.checked;
        match outcome {
            Outcome::CheckBroken => {
                answer.verdict = Verdict::CheckBroken;
                answer.note("the check fails on the directory as the program left it");
            }
            Outcome::Passed { complete: true } => answer.verdict = Verdict::Kept,
            Outcome::Passed { complete: false } => {
                answer.note("too few states for the cuts: raise --states");
            }
            Outcome::Refused(refused) => {
                let disk = candidates::disk_at(recording, refused.candidate.cut);
                let state = DirectoryState::new(&disk, &refused.candidate.loss);
                let folder = (self.kept)()?;
                pool.run(&state, disk.output.len(), &folder)?;
                answer.verdict = Verdict::Lost;
                answer.failing = Some(FailingState {
                    id: refused.candidate.to_string(),
                    sentence: sentence(recording, &disk, &refused.candidate),
                    timed_out: refused.result == CheckResult::TimedOut,
                    folder,
                });
            }
        }
        Ok(())
    }
}
