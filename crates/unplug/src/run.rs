//! A run: record, look for what could be lost, check the states, shrink the one that fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::arguments::Arguments;
use crate::check::command::{Check, CheckResult};
use crate::check::pool::{CheckPool, Refused, StateToCheck};
use crate::model::directory::DirectoryState;
use crate::model::loss::Loss;
use crate::mount::namespace;
use crate::program::Program;
use crate::record::recording::Recording;
use crate::report::answer::{Answer, FailingState};
use crate::report::losable::losable;
use crate::report::sentence::sentence;
use crate::report::verdict::Verdict;
use crate::rng::Rng;
use crate::search::candidates::{self, Candidate, Candidates};
use crate::search::shrink::shrink;

/// How often states are drawn when the earlier draws had too few new ones.
const DRAWS_MAX: usize = 8;

/// The folders of a run.
struct Folders {
    /// On the file system of temporary files; what is kept for the user is here.
    base: PathBuf,
    /// Where the recorded directory is mounted.
    recorded: PathBuf,
    /// In memory.
    states: PathBuf,
}

/// Runs the program and its checks, prints the answer.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    namespace::enter()?;
    let folders = Folders::new()?;
    let program = Program { setup: arguments.setup.clone(), arguments: arguments.program.clone() };
    let recorded = program.run(&folders.recorded)?;
    let mut answer = answer(arguments, &recorded.recording, &folders)?;
    if !recorded.status.success() {
        answer.notes.push(format!("the program failed: {}", recorded.status));
        if answer.verdict == Verdict::Kept {
            answer.verdict = Verdict::NotMeasured;
        }
    }
    answer.print(arguments.json)?;
    folders.remove(answer.failing.is_some());
    Ok(answer.verdict.exit_code())
}

fn answer(arguments: &Arguments, recording: &Recording, folders: &Folders) -> Result<Answer> {
    let mut answer = Answer::new(recording);
    let Some(command) = &arguments.check else {
        answer.losable = losable(recording).iter().map(ToString::to_string).collect();
        answer.verdict = match answer.losable.is_empty() {
            true if recording.requests() == 0 => Verdict::NotMeasured,
            true => Verdict::Kept,
            false => Verdict::Lost,
        };
        return Ok(answer);
    };
    let check =
        Check { command: command.clone(), timeout: Duration::from_secs(arguments.check_timeout) };
    let last = candidates::disk_at(recording, recording.events.len());
    let pool = CheckPool {
        check: &check,
        nodes: &recording.nodes,
        output: &last.output,
        folder: &folders.states,
        jobs: arguments.jobs.max(1),
    };
    let uncut = DirectoryState::new(&last, &Loss::default());
    if pool.check_one(&uncut, last.output.len())? != CheckResult::Passed {
        answer.verdict = Verdict::CheckBroken;
        answer.notes.push("the check fails on the directory as the program left it".to_owned());
        return Ok(answer);
    }
    search(arguments, recording, &pool, folders, &mut answer)?;
    Ok(answer)
}

fn search(
    arguments: &Arguments,
    recording: &Recording,
    pool: &CheckPool<'_>,
    folders: &Folders,
    answer: &mut Answer,
) -> Result<()> {
    let mut candidates = Candidates::default();
    let (classes, complete) = candidates.find_in_classes(recording, arguments.states);
    let mut refused = check_states(recording, pool, classes, answer)?;
    let mut rng = Rng::new(arguments.seed);
    for _ in 0..DRAWS_MAX {
        let left = arguments.states.saturating_sub(answer.states);
        if refused.is_some() || left == 0 {
            break;
        }
        let drawn = candidates.draw(recording, &mut rng, left);
        refused = check_states(recording, pool, drawn, answer)?;
    }
    let Some(refused) = refused else {
        answer.verdict = if complete { Verdict::Kept } else { Verdict::NotMeasured };
        if !complete {
            answer.notes.push("too few states for the cuts: raise --states".to_owned());
        }
        return Ok(());
    };
    let disk = candidates::disk_at(recording, refused.candidate.cut);
    let fails = |loss: &Loss| {
        let state = DirectoryState::new(&disk, loss);
        let result = pool.check_one(&state, disk.output.len());
        result.is_ok_and(|result| result != CheckResult::Passed)
    };
    let loss = shrink(refused.candidate.loss, fails);
    let kept = folders.base.join("failing");
    fs::create_dir_all(&kept).with_context(|| format!("failed to make {}", kept.display()))?;
    pool.run(&DirectoryState::new(&disk, &loss), disk.output.len(), &kept)?;
    answer.verdict = Verdict::Lost;
    answer.failing = Some(FailingState {
        sentence: sentence(recording, &disk, refused.candidate.cut, &loss),
        timed_out: refused.result == CheckResult::TimedOut,
        folder: kept,
    });
    Ok(())
}

/// Checks states in the order of their cuts, until one is refused.
fn check_states(
    recording: &Recording,
    pool: &CheckPool<'_>,
    mut states: Vec<Candidate>,
    answer: &mut Answer,
) -> Result<Option<Refused>> {
    states.sort_by_key(|candidate| candidate.cut);
    let result = pool.check_all(|send| {
        let mut states = states.into_iter().peekable();
        candidates::visit_cuts(recording, |cut, disk| {
            while let Some(candidate) = states.next_if(|state| state.cut == cut) {
                let state = DirectoryState::new(disk, &candidate.loss);
                if !send(StateToCheck { candidate, state, output_bytes: disk.output.len() }) {
                    return false;
                }
            }
            states.peek().is_some()
        });
    })?;
    answer.states += result.checked;
    Ok(result.refused)
}

impl Folders {
    /// Removes all but the failing state, where there is one. What stays of an empty folder is no
    /// reason to fail.
    fn remove(&self, keeps_failing: bool) {
        let _ = unmount(&self.states, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.states);
        let _ = fs::remove_dir(&self.recorded);
        if !keeps_failing {
            let _ = fs::remove_dir(&self.base);
        }
    }

    fn new() -> Result<Self> {
        let base = tempfile::Builder::new().prefix("unplug-").tempdir();
        let base = base.context("failed to make a temporary folder")?.keep();
        let folders = Self { recorded: base.join("dir"), states: base.join("states"), base };
        for folder in [&folders.recorded, &folders.states] {
            fs::create_dir(folder).with_context(|| format!("{}", folder.display()))?;
        }
        mount("tmpfs", Path::new(&folders.states), "tmpfs", MountFlags::empty(), None)
            .context("failed to mount a file system in memory for the states")?;
        Ok(folders)
    }
}
