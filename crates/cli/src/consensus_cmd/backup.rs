//! `esker consensus backup`: copies a consensus log, or all logs of a manager.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;

use clap::Args;
use esker_consensus::{
    BackupSummary, Error, LogManager, Options, UNFINISHED_BACKUP, backup_log, logs_in,
};
use esker_log::ReadOptions;
use serde_json::json;

use crate::destination::refuse_inside;
use esker_command::exit::{Failure, Outcome, complain, no_space_for_copy};
use esker_command::output;
use esker_command::signals;

const EXAMPLES: &str = "\
Examples:
  esker consensus backup ./node-1 ./copy
  esker consensus backup ./tables ./copy --json | jq .logs

A directory of many logs is copied as of one moment, with all snapshots. No process may have it open: in the one \
that has, call `LogManager::backup`. A single log is copied beside its writer, too. DEST is complete when the command \
ends with exit status 0, or with 3 and a note for each snapshot that is corrupt and was left out; until then no command \
opens it. A command that fails, or that a signal ends (status 130 after SIGINT, 1 after SIGTERM), removes what it \
copied. After a crash, delete DEST and back up again.

A copy opens read-only, because the original may promise and accept more. Before a node continues with it, that node \
gets a new number, and `esker consensus renumber DEST` makes the copy an ordinary log. `esker log backup` copies no \
consensus log. A copy by hand, with `cp`, is not recognised as one: it must not be opened beside the original.";

/// Arguments of `esker consensus backup`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BackupArguments {
    /// The log's directory, or that of many logs
    dir: PathBuf,
    /// The directory of the copy, which must be empty or not exist
    dest: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Copies the logs.
pub fn run(arguments: &BackupArguments) -> Outcome {
    let BackupArguments { dir, dest, json } = arguments;
    refuse_inside(dir, dest)?;
    let failed = |error: Error| explain(&error, dir, dest);
    let done = if logs_in(dir).map_err(failed)?.is_some() {
        let manager = LogManager::builder(dir).must_exist(true).open().map_err(failed)?;
        let interrupted = signals::close_at_signal({
            let manager = manager.clone();
            move || drop(manager.close_all())
        })
        .map_err(|error| Failure::of_io("catch signals", &error))?;
        let done = manager.backup(dest).map_err(|error| match error {
            Error::Closed | Error::RegistryClosed if interrupted.load(SeqCst) => {
                Failure::interrupted("interrupted: the backup is not complete, and its files were removed")
            }
            Error::Closed | Error::RegistryClosed => Failure::failed(
                "a signal ended the command: the backup is not complete, and its files were removed",
            ),
            error => failed(error),
        })?;
        manager.close_all().map_err(failed)?;
        done
    } else {
        backup_log(dir, dest, &Options::default()).map_err(failed)?
    };
    report(&done, *json)?;
    if done.skipped.is_empty() {
        return Ok(());
    }
    let count = done.skipped.len();
    Err(Failure::corrupt(match count {
        1 => "the copy is complete but for 1 snapshot, which is not whole".to_owned(),
        _ => format!("the copy is complete but for {count} snapshots, which are not whole"),
    }))
}

fn report(done: &BackupSummary, as_json: bool) -> Outcome {
    for (key, error) in &done.skipped {
        let log = if key.is_empty() { String::new() } else { format!("{}: ", key.escape_ascii()) };
        complain(&format!("note: {log}{error}"));
    }
    let BackupSummary { logs, records, snapshots, skipped, .. } = done;
    let many = |count: u64, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    if as_json {
        return output::print_json(&json!({
            "logs": logs,
            "records": records,
            "snapshots": snapshots,
            "skipped": skipped.len(),
        }));
    }
    output::print(&format!(
        "copied {}, {} and {}\n",
        many(*logs as u64, "log"),
        many(*records, "record"),
        many(*snapshots as u64, "snapshot")
    ))
}

/// The failure to copy, in the words of what to do.
fn explain(error: &Error, dir: &Path, dest: &Path) -> Failure {
    match error {
        Error::Log(esker_log::Error::Locked { .. }) => {
            let advice = "`LogManager::backup` copies many logs in the process that has them open";
            Failure::of_consensus(error, dir).or_else(advice)
        }
        Error::Log(esker_log::Error::NoSpace { cause, .. }) => no_space_for_copy(cause, dest),
        Error::Log(esker_log::Error::Trimmed { .. }) => Failure::failed(format!(
            "{}: another process dropped records before they were copied; try again",
            dir.display()
        )),
        Error::Log(esker_log::Error::Quarantined { .. }) => {
            let advice = "a log that lost records is not copied, because its node may have \
                          forgotten votes: let that node rejoin as a new member";
            Failure::of_consensus(error, dir).or_else(advice)
        }
        Error::NotEmpty { .. } if is_unfinished(dest) => Failure::failed(format!(
            "{} is an unfinished backup; delete it and back up again",
            dest.display()
        )),
        Error::NotEmpty { .. } => Failure::failed(error.to_string()),
        _ => Failure::of_consensus(error, dir),
    }
}

/// Whether an earlier backup to this directory did not end.
fn is_unfinished(dest: &Path) -> bool {
    [dest.to_owned(), dest.join("registry")].into_iter().any(|dir| {
        let found = esker_log::component(dir, ReadOptions::default());
        found.is_ok_and(|found| found == Some(UNFINISHED_BACKUP))
    })
}
