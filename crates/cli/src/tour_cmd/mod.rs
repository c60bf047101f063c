//! `esker tour`: each component at work on this machine, checked and measured.
//!
//! All that a step reads is compared with what it wrote. A step that fails does not end the tour.

mod killed_acceptor;
mod killed_leader;
mod log_steps;
mod step;
mod watched_store;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::HumanFloatCount;
use serde_json::json;

use crate::temporary_folder::TemporaryFolder;
use esker_bench::measure::figure::rounded;
use esker_command::exit::{Failure, Outcome};
use esker_command::library_errors::with_causes;
use esker_command::output::{print, print_json};
use step::{Figure, StepResult};

const EXAMPLES: &str = "\
Examples:
  # What Esker does, and how fast it is on this machine
  esker tour

  # On another disk, where the usual folder is in memory or full
  TMPDIR=/mnt/data esker tour

It takes some 5 seconds, up to 30 on a slow machine, and ends within a minute
in any case. It needs 60 MB and no network but 127.0.0.1, and removes its
folder. The exit status is 1 if anything was not as promised.";

/// How long a step may take, and all of them.
const STEP_LIMIT: Duration = Duration::from_secs(20);
const TOUR_LIMIT: Duration = Duration::from_secs(50);

const NEXT: &str = "
All is as promised: what was read is what was written. What to try next:
  a log        seq 1 1000 | ESKER log append ./orders; ESKER log cat --follow ./orders
  a store      ESKER kv put ./store colour blue; ESKER kv scan ./store
  a Raft log   cargo run -p esker-raft --example counter ./counter (in the source)
  timestamps   ESKER cluster local ./three, and in another terminal: ESKER ts --n 3
";

/// Show what each component does on this machine
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TourArguments {
    /// Print one JSON object for each step
    #[arg(long)]
    json: bool,
    /// Be the acceptor that a step kills, in this folder
    #[arg(long, hide = true, value_name = "DIR")]
    acceptor: Option<PathBuf>,
}

/// Takes a step in a folder.
type StepFunction = fn(&Path) -> StepResult<Vec<Figure>>;
/// A step: its name, what it does, and the function that takes it.
type Step = (&'static str, &'static str, StepFunction);

const STEPS: [Step; 7] = [
    ("follow", "100,000 records, followed by a second process", log_steps::follow),
    ("kill", "kill -9 of a writer", log_steps::kill),
    ("sync", "waiting until a record is durable", log_steps::sync),
    ("repair", "a flipped byte", log_steps::repair),
    ("store", "20,000 keys put, watched and scanned", watched_store::run),
    ("paxos", "kill -9 of a Paxos acceptor", killed_acceptor::run),
    ("timestamps", "three nodes, kill -9 of their leader", killed_leader::run),
];

/// Takes the steps, and fails if one did.
pub fn run(TourArguments { json, acceptor }: &TourArguments) -> Outcome {
    if let Some(dir) = acceptor {
        return killed_acceptor::accept(dir).map_err(|error| Failure::failed(with_causes(&*error)));
    }
    let (json, folder) = (*json, TemporaryFolder::create("esker-tour-")?);
    let (end, mut failed, mut lacks_room) = (Instant::now() + TOUR_LIMIT, Vec::new(), false);
    for (name, what, run) in STEPS {
        if !json {
            print(&format!("{what}: "))?;
        }
        let begin = Instant::now();
        let limit = STEP_LIMIT.min(end.saturating_duration_since(begin));
        let taken = take_step(run, folder.path().to_owned(), limit);
        let mut line = json!({ "step": name, "ok": taken.is_ok() });
        let text = match taken.map_err(|error| with_causes(&*error)) {
            Ok(figures) => {
                let texts = figures.into_iter().map(|(key, value, words)| {
                    let value = rounded(value, if value < 100.0 { 2 } else { 0 });
                    let is_whole = value.fract() == 0.0;
                    line[key] = if is_whole { json!(value as u64) } else { json!(value) };
                    words.replace("{}", &HumanFloatCount(value).to_string())
                });
                texts.collect::<Vec<_>>().join(", ")
            }
            Err(error) => {
                failed.push(name);
                // What a full disk and a limit on the size of files are called.
                lacks_room |= ["No space", "too large"].iter().any(|it| error.contains(it));
                line["error"] = json!(error);
                format!("FAILED: {error}")
            }
        };
        line["seconds"] = json!(rounded(begin.elapsed().as_secs_f64(), 2));
        if json { print_json(&line)? } else { print(&(text + "\n"))? }
    }
    if !failed.is_empty() {
        let advice = "; set TMPDIR to a folder where 60 MB can be written";
        let (failed, advice) = (failed.join(", "), if lacks_room { advice } else { "" });
        return Err(Failure::failed(format!("not everything was as promised: {failed}{advice}")));
    }
    let program = std::env::args().next().unwrap_or_default();
    if json { Ok(()) } else { print(&NEXT.replace("ESKER", &program)) }
}

/// Takes a step in a folder of its own, and in a thread: it is not waited for beyond the limit.
fn take_step(run: StepFunction, folder: PathBuf, limit: Duration) -> StepResult<Vec<Figure>> {
    let (sender, taken) = channel();
    let step = move || {
        let dir = tempfile::tempdir_in(folder).map_err(Into::into);
        // The tour may have gone on.
        let _ = sender.send(dir.and_then(|dir| run(dir.path())));
    };
    let has_time = !limit.is_zero();
    let _thread = has_time.then(|| thread::Builder::new().spawn(step)).transpose()?;
    let late = format!("did not end in time: a step has {STEP_LIMIT:?}, all {TOUR_LIMIT:?}");
    match taken.recv_timeout(limit) {
        Ok(taken) => taken,
        Err(RecvTimeoutError::Disconnected) if has_time => Err("it panicked".into()),
        Err(_) => Err(late.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::*;

    #[test]
    fn step_that_hangs_or_panics_fails_with_a_reason() {
        let why = |limit_ms, run: StepFunction| {
            let limit = Duration::from_millis(limit_ms);
            let taken = take_step(run, std::env::temp_dir(), limit);
            taken.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(why(60_000, |_| Ok(Vec::new())), Ok(()));
        assert_eq!(why(60_000, |_| panic!("as if by mistake")), Err("it panicked".into()));
        let hangs: StepFunction = |_| {
            thread::sleep(Duration::from_secs(3));
            Ok(Vec::new())
        };
        for limit_ms in [0, 50] {
            let late = why(limit_ms, hangs);
            assert!(late.as_ref().is_err_and(|why| why.contains("a step has 20s")), "{late:?}");
        }
    }
}
