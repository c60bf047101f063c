//! `esker snapshot`: the snapshots of a consensus log.

mod create_from;
mod list;
mod restore;
mod verify;

use std::path::Path;

use clap::Subcommand;
use esker_consensus::{SnapshotInfo, Snapshots};
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome};
use crate::output;

/// The commands of `esker snapshot`.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// List snapshots; needs no lock
    List(list::ListArguments),
    /// Write a snapshot from a file or standard input; needs the lock
    CreateFrom(create_from::CreateFromArguments),
    /// Check a snapshot, and print its content; needs no lock
    Restore(restore::RestoreArguments),
    /// Read and check every byte; exit status 3 for a snapshot that is not whole; needs no lock
    Verify(verify::VerifyArguments),
}

/// Runs a command of `esker snapshot`.
pub fn run(command: SnapshotCommand) -> Outcome {
    match command {
        SnapshotCommand::List(arguments) => list::run(&arguments),
        SnapshotCommand::CreateFrom(arguments) => create_from::run(&arguments),
        SnapshotCommand::Restore(arguments) => restore::run(&arguments),
        SnapshotCommand::Verify(arguments) => verify::run(&arguments),
    }
}

/// Opens the snapshots of the log in `dir`, beside its writer.
fn open(dir: &Path) -> Outcome<Snapshots> {
    Snapshots::open(dir).map_err(|error| Failure::of_consensus(&error, dir))
}

/// A snapshot as JSON. A note that is not UTF-8 text is base 64.
fn as_json(info: &SnapshotInfo) -> Value {
    let (key, note) = match std::str::from_utf8(&info.note) {
        Ok(text) => ("note", text.to_owned()),
        Err(_) => ("note_b64", output::base64(&info.note)),
    };
    let mut line = json!({
        "slot": info.slot.0,
        "entries": info.entries,
        "bytes": info.len,
        "file_bytes": info.file_size,
    });
    line[key] = Value::String(note);
    line
}

/// A snapshot as a line of text.
fn as_text(info: &SnapshotInfo) -> String {
    let SnapshotInfo { slot, len, note, .. } = info;
    let note = if note.is_empty() { String::new() } else { format!(" {}", note.escape_ascii()) };
    format!("{slot} {len} bytes{note}\n")
}
