//! `esker tour`: each component at work on this machine, checked and measured, in half a minute.
//!
//! All that a step reads is compared with what it wrote. A step that fails does not end the tour.

mod killed_acceptor;
mod killed_leader;
mod log_steps;
mod step;
mod watched_store;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::HumanFloatCount;
use serde_json::json;

use crate::temporary_folder::TemporaryFolder;
use esker_command::exit::{Failure, Outcome, with_causes};
use esker_command::output::{print, print_json};
use step::{Figure, StepResult};

const EXAMPLES: &str = "\
Examples:
  # What Esker does, and how fast it is on this machine
  esker tour

  # On another disk, where the usual folder is in memory or full
  TMPDIR=/mnt/data esker tour

It takes up to 30 seconds and 150 MB (60 MB are enough), uses no network but
127.0.0.1, and removes its folder. The exit status is 1 if anything was not as
promised.";

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

/// A step: its name, what it does, and the function that measures it.
type Step = (&'static str, &'static str, fn(&Path) -> StepResult<Vec<Figure>>);

const STEPS: [Step; 7] = [
    ("follow", "100,000 records, followed by a second process", log_steps::follow),
    ("kill", "kill -9 of a writer", log_steps::kill),
    ("sync", "waiting until a record is durable", log_steps::sync),
    ("repair", "a flipped byte", log_steps::repair),
    ("store", "20,000 keys put, watched and scanned", watched_store::run),
    ("paxos", "kill -9 of a Paxos acceptor", killed_acceptor::run),
    ("timestamps", "three nodes, kill -9 of their leader", killed_leader::run),
];

pub fn run(arguments: &TourArguments) -> Outcome {
    if let Some(dir) = &arguments.acceptor {
        return killed_acceptor::accept(dir).map_err(|error| Failure::failed(with_causes(&*error)));
    }
    let folder = TemporaryFolder::create("esker-tour-", Duration::from_secs(60))?;
    take(&STEPS, folder.path(), arguments.json)
}

/// Takes the steps, and fails if one did.
fn take(steps: &[Step], folder: &Path, json: bool) -> Outcome {
    let mut is_kept = true;
    for (name, what, run) in steps {
        if !json {
            print(&format!("{what}: "))?;
        }
        let begin = Instant::now();
        let taken = tempfile::tempdir_in(folder).map_err(Into::into);
        let taken = taken.and_then(|dir| run(dir.path()));
        is_kept &= taken.is_ok();
        let mut line = json!({ "step": name, "ok": taken.is_ok() });
        let mut texts = Vec::new();
        match taken.map_err(|error| with_causes(&*error)) {
            Ok(figures) => {
                for (key, value, words) in figures {
                    let decimals = if value < 100.0 { 100.0 } else { 1.0 };
                    let value = (value * decimals).round() / decimals;
                    texts.push(words.replace("{}", &HumanFloatCount(value).to_string()));
                    line[key] =
                        if value.fract() == 0.0 { json!(value as u64) } else { json!(value) };
                }
            }
            Err(error) => {
                texts.push(format!("FAILED: {error}"));
                line["error"] = error.into();
            }
        }
        line["seconds"] = json!((begin.elapsed().as_secs_f64() * 100.0).round() / 100.0);
        if json { print_json(&line)? } else { print(&(texts.join(", ") + "\n"))? }
    }
    match is_kept {
        true if json => Ok(()),
        true => print(&NEXT.replace("ESKER", &std::env::args().next().unwrap_or_default())),
        false => Err(Failure::failed("not everything was as promised")
            .or_else("where there is no room for 60 MB, set TMPDIR to another folder")),
    }
}
