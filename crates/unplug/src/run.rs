//! The commands: record and check a program, replay a recording, explain it.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::arguments::{Arguments, CheckArguments, Command, ReplayArguments};
use crate::check::command::{CheckFiles, CheckResult};
use crate::check::pool::CheckPool;
use crate::cut_socket;
use crate::fault::FaultInjector;
use crate::folders::Folders;
use crate::model::directory::DirectoryState;
use crate::mount::namespace;
use crate::program::Program;
use crate::record::file;
use crate::record::recording::Recording;
use crate::report::answer::{Answer, FailingState};
use crate::report::losable::losable;
use crate::report::mapping;
use crate::report::sentence::sentence;
use crate::report::timeline;
use crate::report::verdict::Verdict;
use crate::search::candidates::{self, Candidate};
use crate::states::{Outcome, StateChecks, check_of};

/// Runs a command; returns its exit status.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        None => record(arguments),
        Some(Command::Replay(arguments)) => replay(arguments),
        Some(Command::Cut { name }) => cut_socket::cut(name).map(|()| ExitCode::SUCCESS),
        Some(Command::Explain { file }) => {
            let recording = file::load(file)?;
            match timeline::print(&recording, &mut io::stdout().lock()) {
                // The reader has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
                printed => printed.map(|()| ExitCode::SUCCESS).context("standard output"),
            }
        }
    }
}

fn record(arguments: &Arguments) -> Result<ExitCode> {
    namespace::enter()?;
    let folders = Folders::new()?;
    let program = Program {
        setup: arguments.setup.clone(),
        arguments: arguments.program.clone(),
        drive: arguments.drive.clone(),
        durable_at: arguments.sync_is_durable_at.clone(),
        faults: FaultInjector::new(&arguments.faults, arguments.check.seed),
    };
    let recorded = program.run(&folders)?;
    if let Some(path) = &arguments.record {
        file::save(&recorded.recording, path)?;
    }
    let mut answer = answer(&arguments.check, &recorded.recording, &folders)?;
    mapping::doubt(&mut answer, &recorded.recording);
    if !recorded.missed_faults.is_empty() && answer.verdict == Verdict::Kept {
        answer.verdict = Verdict::NotMeasured;
    }
    answer.notes.extend(recorded.missed_faults);
    answer.notes.extend(recorded.notes);
    if !recorded.status.success() {
        let failed = if arguments.drive.is_some() { "client" } else { "program" };
        answer.notes.push(format!("the {failed} failed: {}", recorded.status));
        if answer.verdict == Verdict::Kept {
            answer.verdict = Verdict::NotMeasured;
        }
    }
    answer.print(arguments.check.json)?;
    Ok(answer.verdict.exit_code())
}

fn replay(arguments: &ReplayArguments) -> Result<ExitCode> {
    let recording = file::load(&arguments.file)?;
    namespace::enter()?;
    let folders = Folders::new()?;
    let code = match &arguments.state {
        Some(state) => replay_state(&arguments.check, &recording, state, &folders)?,
        None => {
            let mut answer = answer(&arguments.check, &recording, &folders)?;
            mapping::doubt(&mut answer, &recording);
            answer.print(arguments.check.json)?;
            answer.verdict.exit_code()
        }
    };
    Ok(code)
}

/// Builds one state, and runs the check on it where there is one.
fn replay_state(
    arguments: &CheckArguments,
    recording: &Recording,
    state: &Candidate,
    folders: &Folders,
) -> Result<ExitCode> {
    if state.cut > recording.events.len() {
        bail!("the recording has {} events, and no state {state}", recording.events.len());
    }
    let disk = candidates::disk_at(recording, state.cut);
    let kept = folders.kept()?;
    let built = DirectoryState::new(&disk, &state.loss);
    let files = CheckFiles::new(&kept);
    let (nodes, output) = (&recording.nodes, &disk.output);
    let result = match check_of(arguments) {
        Some(check) => {
            let (check, folder) = (&check, &folders.states);
            let pool = CheckPool { check, nodes, output, folder, jobs: 1 };
            Some(pool.check_and_keep(&built, output.len(), &kept)?)
        }
        None => {
            built.write_with_output(nodes, output, &files.dir, &files.output)?;
            None
        }
    };
    let verdict = match result {
        None => "",
        Some(CheckResult::Passed) => "the check passed\n",
        Some(CheckResult::Failed) => "the check failed\n",
        Some(CheckResult::TimedOut) => "the check did not end in time\n",
    };
    let text = sentence(recording, &disk, state);
    write!(io::stdout().lock(), "{verdict}{text}\nthe directory: {}\n", files.dir.display())?;
    let passed = matches!(result, None | Some(CheckResult::Passed));
    Ok(if passed { ExitCode::SUCCESS } else { Verdict::Lost.exit_code() })
}

fn answer(arguments: &CheckArguments, recording: &Recording, folders: &Folders) -> Result<Answer> {
    let mut answer = Answer::new(recording);
    if recording.requests() == 0 {
        answer.note("the program changed nothing in its directory");
        return Ok(answer);
    }
    let Some(check) = check_of(arguments) else {
        answer.losable = losable(recording).iter().map(ToString::to_string).collect();
        answer.verdict = match answer.losable.is_empty() {
            true => Verdict::Kept,
            false => Verdict::Lost,
        };
        return Ok(answer);
    };
    let output = candidates::disk_at(recording, recording.events.len()).output;
    let pool = CheckPool {
        check: &check,
        nodes: &recording.nodes,
        output: &output,
        folder: &folders.states,
        jobs: arguments.jobs.max(1),
    };
    let mut checks = StateChecks { recording, pool: &pool, checked: 0 };
    let outcome = checks.run(arguments)?;
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
            let kept = folders.kept()?;
            answer.verdict = Verdict::Lost;
            let timed_out = refused.result == CheckResult::TimedOut;
            answer.failing = Some(failing(recording, &pool, &refused.candidate, timed_out, &kept)?);
        }
    }
    Ok(answer)
}

/// Builds the failing state in a folder of the user, with the log of its check.
fn failing(
    recording: &Recording,
    pool: &CheckPool<'_>,
    state: &Candidate,
    timed_out: bool,
    kept: &Path,
) -> Result<FailingState> {
    let disk = candidates::disk_at(recording, state.cut);
    let built = DirectoryState::new(&disk, &state.loss);
    pool.check_and_keep(&built, disk.output.len(), kept)?;
    Ok(FailingState {
        id: state.to_string(),
        sentence: sentence(recording, &disk, state),
        timed_out,
        folder: kept.to_owned(),
    })
}
