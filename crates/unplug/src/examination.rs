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
use crate::report::mapping;
use crate::report::sentence::sentence;
use crate::report::verdict::Verdict;
use crate::search::candidates;
use crate::states::{Outcome, Search, StateChecks};

/// A check of a recording's states.
pub struct Examination<'a> {
    pub recording: &'a Recording,
    pub check: &'a dyn StateCheck,
    pub search: Search,
    /// A folder for the states, on a file system in memory.
    pub states: &'a Path,
    /// Makes the folder of a failing state, which stays.
    pub kept: &'a dyn Fn() -> Result<PathBuf>,
    /// Counts the states that were checked.
    pub progress: ProgressBar,
}

/// Lists the requests that were acknowledged and could be lost, without a check.
pub fn losable_answer(recording: &Recording) -> Answer {
    let mut answer = Answer::new(recording);
    if has_requests(recording, &mut answer) {
        answer.losable = losable(recording).iter().map(ToString::to_string).collect();
        answer.verdict = match answer.losable.is_empty() {
            true => Verdict::Kept,
            false => Verdict::Lost,
        };
    }
    require_success(recording, &mut answer);
    mapping::doubt(&mut answer, recording);
    require_written_bytes(recording, &mut answer);
    answer
}

fn has_requests(recording: &Recording, answer: &mut Answer) -> bool {
    let has_requests = recording.requests() > 0;
    if !has_requests {
        answer.note("the program changed nothing in its directory");
    }
    has_requests
}

/// Keeps nothing of a program that did not end with success: its end was not seen.
fn require_success(recording: &Recording, answer: &mut Answer) {
    if answer.verdict == Verdict::Kept && !recording.events.contains(&Event::Success) {
        answer.verdict = Verdict::NotMeasured;
        answer.note("the program did not end with success");
    }
}

/// Takes an answer back whose states lack written bytes that could not be read.
fn require_written_bytes(recording: &Recording, answer: &mut Answer) {
    if let Some(failure) = recording.unreadable() {
        answer.verdict = Verdict::NotMeasured;
        answer.losable.clear();
        answer.failing = None;
        answer.note(&failure);
    }
}

impl Examination<'_> {
    pub fn answer(&self) -> Result<Answer> {
        let mut answer = Answer::new(self.recording);
        if has_requests(self.recording, &mut answer) {
            self.check_states(&mut answer)?;
        }
        require_success(self.recording, &mut answer);
        mapping::doubt(&mut answer, self.recording);
        require_written_bytes(self.recording, &mut answer);
        Ok(answer)
    }

    fn check_states(&self, answer: &mut Answer) -> Result<()> {
        let (recording, search) = (self.recording, self.search.clone().within_limits());
        let output = candidates::disk_at(recording, recording.events.len()).output;
        let pool = CheckPool {
            check: self.check,
            nodes: &recording.nodes,
            output: &output,
            folder: self.states,
            jobs: search.jobs,
            progress: &self.progress,
        };
        let mut checks = StateChecks { recording, pool: &pool, checked: 0 };
        let outcome = checks.run(&search)?;
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
                pool.check_and_keep(&state, disk.output.len(), &folder)?;
                answer.verdict = Verdict::Lost;
                if !candidates::is_allowed_by_ext4(recording, &refused.candidate) {
                    answer.note("ext4 with its default options does not leave this state");
                }
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::record::operation::{Ino, Operation};
    use crate::record::payload::PayloadStore;

    #[test]
    fn written_bytes_that_cannot_be_read_again_give_no_verdict() {
        let folder = tempfile::tempdir().unwrap();
        // Not open to read.
        let file = File::create(folder.path().join("spill")).unwrap();
        let mut recording = Recording::with_payloads(PayloadStore::spilling_to(file));
        let (data, offset) = (recording.keep(b"data").unwrap(), 0);
        recording.add("a".to_owned(), Operation::Write { file: Ino(2), offset, data }).unwrap();
        recording.events.push(Event::Success);
        let answer = losable_answer(&recording);
        assert_eq!(answer.verdict, Verdict::NotMeasured, "{answer}");
        assert!(answer.notes[0].contains("cannot be read again"), "{answer}");
    }
}
