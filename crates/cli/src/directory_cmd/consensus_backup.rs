//! The copy of a consensus log, or of all logs of a manager.

use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

use esker_consensus::{
    BackupError, BackupSummary, Error, LogManager, Options, StorageError, UNFINISHED_BACKUP,
    backup_log,
};
use serde_json::json;

use super::component::{Component, Directory};
use super::destination::{CopyCommand, is_unfinished};
use crate::consensus_dir;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::output;
use esker_command::remedies::no_space_for_copy;
use esker_command::signals;

/// Copies one log, or all logs of a manager.
pub fn copy(
    from: &Directory,
    key: Option<&str>,
    to: &Path,
    command: CopyCommand,
    as_json: bool,
) -> Outcome {
    let done = match (from.component, key) {
        (Component::Manager, None) => copy_all(&from.path, to, command)?,
        (Component::Manager, key) => {
            copy_one(&consensus_dir::target(&from.path, key)?.dir, to, command)?
        }
        _ => copy_one(&from.path, to, command)?,
    };
    // The copy of one of many logs is a log alone.
    let component = if key.is_some() { Component::Consensus } else { from.component };
    report(component, &done, command, as_json)?;
    let corrupt = match done.skipped.len() {
        0 => return Ok(()),
        1 => "1 snapshot, which is not whole".to_owned(),
        count => format!("{count} snapshots, which are not whole"),
    };
    Err(Failure::corrupt(format!("the copy is complete but for {corrupt}")))
}

fn copy_one(dir: &Path, to: &Path, command: CopyCommand) -> Outcome<BackupSummary> {
    backup_log(dir, to, &Options::default())
        .map_err(|error| explain(error.into(), dir, to, command))
}

fn copy_all(dir: &Path, to: &Path, command: CopyCommand) -> Outcome<BackupSummary> {
    let failed = |error: Error| explain(error, dir, to, command);
    let manager = LogManager::builder(dir).must_exist(true).open();
    let manager = manager.map_err(|error| failed(error.into()))?;
    let interrupted = signals::close_at_signal({
        let manager = manager.clone();
        move || drop(manager.close_all())
    })?;
    let done = manager.backup(to).map_err(|error| match error {
        BackupError::Storage(StorageError::Closed) => {
            command.ended_by_signal(interrupted.load(SeqCst))
        }
        error => failed(error.into()),
    })?;
    manager.close_all().map_err(|error| failed(error.into()))?;
    Ok(done)
}

fn report(
    component: Component,
    done: &BackupSummary,
    command: CopyCommand,
    as_json: bool,
) -> Outcome {
    for (key, error) in &done.skipped {
        let log = if key.is_empty() { String::new() } else { format!("{}: ", key.escape_ascii()) };
        complain(&format!("note: {log}{error}"));
    }
    let BackupSummary { logs, records, snapshots, skipped, .. } = done;
    if as_json {
        return output::print_json(&json!({
            "component": component,
            "logs": logs,
            "records": records,
            "snapshots": snapshots,
            "skipped": skipped.len(),
        }));
    }
    output::print(&format!(
        "{} {}, {} and {}\n",
        command.done(),
        output::counted(*logs as u64, "log"),
        output::counted(*records, "record"),
        output::counted(*snapshots as u64, "snapshot")
    ))
}

/// The failure to copy, with its remedy.
fn explain(error: Error, dir: &Path, dest: &Path, command: CopyCommand) -> Failure {
    match &error {
        Error::Storage(StorageError::Log(esker_log::Error::Locked { .. })) => {
            let advice = "`LogManager::backup` copies many logs in the process that has them open";
            Failure::from_consensus(error, dir).or_else(advice)
        }
        Error::Storage(StorageError::Log(esker_log::Error::NoSpace { cause, .. })) => {
            no_space_for_copy(cause, dest)
        }
        Error::Storage(StorageError::Log(esker_log::Error::Trimmed(_))) => {
            Failure::failed(format!(
                "{}: another process dropped records before they were copied; try again",
                dir.display()
            ))
        }
        Error::Storage(StorageError::Log(esker_log::Error::Quarantined(_))) => {
            let advice = "a log that lost records is not copied, because its node may have \
                          forgotten votes: let that node rejoin as a new member";
            Failure::from_consensus(error, dir).or_else(advice)
        }
        Error::NotEmpty { .. } if is_unfinished(dest, UNFINISHED_BACKUP) => {
            command.unfinished(dest, "")
        }
        Error::NotEmpty { .. } => Failure::failed(error.to_string()),
        _ => Failure::from_consensus(error, dir),
    }
}
