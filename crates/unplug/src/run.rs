//! The commands: record and check a program, replay a recording, explain it.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use indicatif::ProgressBar;

use crate::arguments::{Arguments, CheckArguments, Command, ReplayArguments};
use crate::check::command::{CheckFiles, CheckResult};
use crate::check::pool::CheckPool;
use crate::cut_socket;
use crate::examination::{self, Examination};
use crate::fault::FaultInjector;
use crate::folders::Folders;
use crate::model::directory::DirectoryState;
use crate::mount::namespace;
use crate::outcome::{self, AnsweredRun};
use crate::program::Program;
use crate::progress;
use crate::record::file;
use crate::record::recording::Recording;
use crate::report::answer::Answer;
use crate::report::sentence::sentence;
use crate::report::timeline;
use crate::report::verdict::Verdict;
use crate::search::candidates::{self, Candidate};
use crate::states::{Search, check_of};

/// The exit status when the system refuses a mount or a namespace: that of wrong usage.
const REFUSED_STATUS: u8 = 2;

/// Runs the command `unplug` with the arguments of this process.
#[must_use]
#[allow(clippy::print_stderr, reason = "a command line tool")]
pub fn run_command() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("unplug: {error:#}");
            ExitCode::from(REFUSED_STATUS)
        }
    }
}

/// Runs a command; returns its exit status.
fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        None => record(arguments),
        Some(Command::Replay(arguments)) => replay(arguments),
        Some(Command::Cut { name }) => cut_socket::cut(name).map(|()| ExitCode::SUCCESS),
        Some(Command::Baseline { file, answers }) => outcome::report_vanished(file, answers),
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
    arguments.check.outcome.validate()?;
    namespace::enter()?;
    let folders = Folders::new()?;
    let program = Program {
        setup: arguments.setup.clone(),
        arguments: arguments.program.clone(),
        drive: arguments.drive.clone(),
        durable_at: arguments.sync_is_durable_at.clone(),
        faults: FaultInjector::new(&arguments.faults, arguments.check.seed),
    };
    let mut recorded = program.run(&folders)?;
    recorded.recording.model = arguments.check.model;
    if let Some(path) = &arguments.record {
        file::save(&recorded.recording, path)?;
    }
    let mut answer = answer(&arguments.check, &recorded.recording, &folders)?;
    if !recorded.missed_faults.is_empty() && answer.verdict == Verdict::Kept {
        answer.verdict = Verdict::NotMeasured;
    }
    answer.notes.extend(recorded.missed_faults);
    answer.notes.extend(recorded.notes);
    if !recorded.status.success() {
        let failed = if arguments.drive.is_some() { "client" } else { "program" };
        answer.notes.push(format!("the {failed} failed: {}", recorded.status));
    }
    let words: Vec<_> = arguments.program.iter().map(|word| word.to_string_lossy()).collect();
    arguments.check.outcome.conclude(AnsweredRun {
        recording: &recorded.recording,
        answer,
        subject: &words.join(" "),
        file: arguments.record.as_deref(),
        check: arguments.check.check.as_deref(),
    })
}

fn replay(arguments: &ReplayArguments) -> Result<ExitCode> {
    arguments.check.outcome.validate()?;
    let mut recording = file::load(&arguments.file)?;
    recording.model = arguments.check.model;
    namespace::enter()?;
    let folders = Folders::new()?;
    let code = match &arguments.state {
        Some(state) => replay_state(&arguments.check, &recording, state, &folders)?,
        None => {
            let answer = answer(&arguments.check, &recording, &folders)?;
            arguments.check.outcome.conclude(AnsweredRun {
                recording: &recording,
                answer,
                subject: &arguments.file.to_string_lossy(),
                file: Some(&arguments.file),
                check: arguments.check.check.as_deref(),
            })?
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
            let pool = CheckPool {
                check: &check,
                nodes,
                output,
                folder: &folders.states,
                jobs: 1,
                progress: &ProgressBar::hidden(),
            };
            Some(pool.check_and_keep(&built, output.len(), &kept)?)
        }
        None => {
            built.write_with_output(nodes, output, &files.dir, &files.output)?;
            None
        }
    };
    if let Some(failure) = recording.unreadable() {
        bail!("{failure}");
    }
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
    let Some(check) = check_of(arguments) else {
        return Ok(examination::losable_answer(recording));
    };
    let examination = Examination {
        recording,
        check: &check,
        search: Search::from(arguments),
        states: &folders.states,
        kept: &|| folders.kept(),
        progress: progress::states_bar(arguments.states, arguments.outcome.json),
    };
    examination.answer()
}
