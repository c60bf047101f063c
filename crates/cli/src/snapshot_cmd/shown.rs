//! A snapshot as it is printed.

use std::path::Path;

use esker_consensus::{SnapshotInfo, Snapshots};
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome};
use crate::output;

/// Opens the snapshots of the log in `dir`, beside its writer.
pub fn open(dir: &Path) -> Outcome<Snapshots> {
    Snapshots::open(dir).map_err(|error| Failure::of_consensus(&error, dir))
}

/// A snapshot as JSON. A note that is not UTF-8 text is base 64.
pub fn as_json(info: &SnapshotInfo) -> Value {
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
pub fn as_text(info: &SnapshotInfo) -> String {
    let SnapshotInfo { slot, len, note, .. } = info;
    let note = if note.is_empty() { String::new() } else { format!(" {}", note.escape_ascii()) };
    format!("{slot} {len} bytes{note}\n")
}
