//! The copy of a log, and the log of a copy.

use std::fs::DirEntry;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use esker_log::{Backup, BackupError, Error, OpenError, ReadOnlyLog};
use serde_json::json;

use super::component::Component;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;
use esker_command::progress;

/// How often progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Backs up.
pub fn backup(dir: &Path, dest: &Path, as_json: bool) -> Outcome {
    let backup = copy(dir, dest, as_json, |log| {
        log.storage().backup(dest).map_err(|error| explain(&error.into(), dir, dest))
    })?;
    print(&backup, "backed up", as_json)
}

/// Restores.
pub fn restore(backup: &Path, dir: &Path, as_json: bool) -> Outcome {
    let restored = copy(backup, dir, as_json, |log| match log.storage().restore(dir) {
        Err(BackupError::NotThisBackup { found, .. }) => Err(Failure::failed(format!(
            "{} is not empty: {found}; a log is restored to a directory of its own",
            dir.display()
        ))),
        restored => restored.map_err(|error| explain(&error.into(), backup, dir)),
    })?;
    print(&restored, "restored", as_json)
}

fn copy(
    from: &Path,
    to: &Path,
    as_json: bool,
    copy: impl FnOnce(&ReadOnlyLog) -> Outcome<Backup>,
) -> Outcome<Backup> {
    let log_failure = |error: OpenError| Failure::from_log(&error.into(), from);
    let log = ReadOnlyLog::open(from).map_err(log_failure)?;
    log.component().id().map_err(log_failure)?;
    let total = log.storage().metadata().disk_bytes;
    with_progress(to, total, as_json, || copy(&log))
}

/// The failure to copy, with its remedy.
fn explain(error: &Error, from: &Path, to: &Path) -> Failure {
    match error {
        // Only the destination is locked.
        Error::Locked { pid, .. } => {
            let by = pid.map_or_else(String::new, |pid| format!(", process {pid}"));
            Failure::from_log(error, from).instead(format!(
                "{} is in use{by}: another backup into it is running; wait until it ends",
                to.display()
            ))
        }
        Error::Corrupted(found) if found.file.starts_with(to) => Failure::corrupt(format!(
            "{error}; nothing was copied: remove {}, or copy to another directory",
            to.display()
        )),
        error => Failure::from_log(error, from),
    }
}

/// Copies, and shows how many bytes of segments the destination has meanwhile.
fn with_progress<T>(to: &Path, total: u64, as_json: bool, copy: impl FnOnce() -> T) -> T {
    let bar = progress::copy_bar(total, as_json);
    if bar.is_hidden() {
        return copy();
    }
    bar.tick();
    let (ended, end) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let end = end;
            while end.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                bar.set_position(segment_bytes(to).min(total));
            }
        });
        let copied = copy();
        drop(ended);
        copied
    })
}

/// The bytes of the segments in a directory, with those that are not complete.
fn segment_bytes(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let is_segment = |file: &DirEntry| {
        Path::new(&file.file_name()).extension().is_some_and(|end| end == "seg" || end == "new")
    };
    let sizes = files.filter(is_segment).filter_map(|file| file.metadata().ok());
    sizes.map(|metadata| metadata.len()).sum()
}

fn print(backup: &Backup, done: &str, as_json: bool) -> Outcome {
    let Backup { durable, position, segments, copied, bytes, .. } = backup;
    if as_json {
        return output::print_json(&json!({
            "component": Component::Log,
            "durable": durable.0,
            "position": position.0,
            "segments": segments,
            "copied": copied,
            "bytes": bytes,
        }));
    }
    output::print(&format!(
        "{done} through record {durable}: {copied} of {} copied, {bytes} bytes\n",
        output::counted(*segments as u64, "segment")
    ))
}
