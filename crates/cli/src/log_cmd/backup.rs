//! `esker log backup` and `restore`: a copy of a log, and a log of a copy.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use clap::Args;
use esker_log::{Backup, Error, ReadOnlyLog};
use serde_json::json;

use crate::destination::refuse_inside;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;
use esker_command::progress;

/// How often progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

const BACKUP_EXAMPLES: &str = "\
Examples:
  # Beside a writer; again later, which copies only what has changed
  esker log backup ./esker-data /mnt/backup/esker-data

  # The copy is a log
  esker log verify /mnt/backup/esker-data

It copies what is durable, reads it back, and makes it durable: the copy is complete when the command \
ends with exit status 0. The bytes are those of the segments that were copied, with their headers and \
indexes, which `verify` does not count. Segments that the log dropped leave the copy. If it is interrupted, run it again; \
an earlier backup stays a log meanwhile. A copy that was opened for writing is a log of its own, and takes \
no further backup.";

const RESTORE_EXAMPLES: &str = "\
Examples:
  esker log restore /mnt/backup/esker-data ./esker-data

DIR must be empty or not exist. It is a log when the command ends with exit status 0. If it is interrupted, run \
it again: what is there is continued, or found complete. The backup stays as it is. A restored log has the numbers of the original: readers that have seen later records of that one \
must start over.";

/// Arguments of `esker log backup`.
#[derive(Debug, Args)]
#[command(after_help = BACKUP_EXAMPLES)]
pub struct BackupArguments {
    /// The log's directory
    dir: PathBuf,
    /// The directory of the copy: an earlier backup of this log, empty, or not there
    dest: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `esker log restore`.
#[derive(Debug, Args)]
#[command(after_help = RESTORE_EXAMPLES)]
pub struct RestoreArguments {
    /// The directory of the backup
    dest: PathBuf,
    /// The directory of the restored log: empty, or not there
    dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Backs up.
pub fn run(arguments: &BackupArguments) -> Outcome {
    let BackupArguments { dir, dest, json } = arguments;
    let backup =
        copy(dir, dest, *json, |log| log.backup(dest).map_err(|error| of_copy(&error, dir, dest)))?;
    print(&backup, "backed up", *json)
}

/// Restores.
pub fn restore(arguments: &RestoreArguments) -> Outcome {
    let RestoreArguments { dest, dir, json } = arguments;
    let restored = copy(dest, dir, *json, |log| match log.restore(dir) {
        Err(Error::NotThisBackup { found, .. }) => Err(Failure::failed(format!(
            "{} is not empty: {found}; a log is restored to a directory of its own",
            dir.display()
        ))),
        restored => restored.map_err(|error| of_copy(&error, dest, dir)),
    })?;
    print(&restored, "restored", *json)
}

fn copy(
    from: &Path,
    to: &Path,
    json: bool,
    copy: impl FnOnce(&ReadOnlyLog) -> Outcome<Backup>,
) -> Outcome<Backup> {
    let of_log = |error: Error| Failure::of_log(&error, from);
    let log = ReadOnlyLog::open(from).map_err(of_log)?;
    refuse_inside(from, to)?;
    let command = match log.component().map_err(of_log)? {
        Some(esker_kv::COMPONENT) => Some("`esker kv backup`, which copies a backup back, too"),
        Some(esker_consensus::COMPONENT) => Some("`esker consensus backup`"),
        Some(esker_consensus::COPY_COMPONENT) => Some(
            "`esker consensus backup`, or is used where it is; `esker consensus renumber` lets its \
             node continue with it",
        ),
        _ => None,
    };
    if let Some(command) = command {
        return Err(Failure::failed(format!("{} needs {command}", from.display())));
    }
    let total = log.metadata().disk_bytes;
    with_progress(to, total, json, || copy(&log))
}

fn of_copy(error: &Error, from: &Path, to: &Path) -> Failure {
    match error {
        // Only the destination is locked.
        Error::Locked { pid, .. } => {
            let by = pid.map_or_else(String::new, |pid| format!(", process {pid}"));
            Failure::of_log(error, from).instead(format!(
                "{} is in use{by}: another backup into it is running; wait until it ends",
                to.display()
            ))
        }
        Error::Corrupted(found) if found.file.starts_with(to) => Failure::corrupt(format!(
            "{error}; nothing was copied: remove {}, or copy to another directory",
            to.display()
        )),
        error => Failure::of_log(error, from),
    }
}

/// Copies, and shows how many bytes of segments the destination has meanwhile.
fn with_progress<T>(to: &Path, total: u64, json: bool, copy: impl FnOnce() -> T) -> T {
    let bar = progress::of_copy(total, json);
    if bar.is_hidden() {
        return copy();
    }
    bar.tick();
    let (ended, end) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let end = end;
            while end.recv_timeout(SHOWN_EVERY) == Err(RecvTimeoutError::Timeout) {
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

fn print(backup: &Backup, done: &str, json: bool) -> Outcome {
    let Backup { durable, position, segments, copied, bytes, .. } = backup;
    if json {
        return output::print_json(&json!({
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
